"""The command that measures steps on a GPU, at toy size on the CPU."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("gpu")


def test_model_flops_are_six_for_each_weight_and_twelve_for_each_seen_key(benchmark: Any) -> None:
    asked = benchmark.settings("bert-large", benchmark.REAL, 512, "full")
    labels = np.full(512, -100)
    labels[:77] = 5
    batch = benchmark.steps.Batch([np.zeros(512, np.int64)] * 64, [labels] * 64)
    linear = 24 * 12 * 1024**2 * 64 * 512
    head = (1024**2 + 1024 * 30522) * 64 * 77
    assert benchmark.model_flops(asked, batch) == 6 * (linear + head) + 12 * 1024 * 24 * 64 * 512**2


def test_micro_batches_of_the_peer_hold_every_sequence_within_the_tokens(benchmark: Any) -> None:
    asked = benchmark.settings("bert-tiny", benchmark.REAL, 128, "mixed")
    (batch, *_) = benchmark.steps.batches_of(asked)
    parts = benchmark.micro_batches(batch, asked.tokens)
    assert sum(len(part["input_ids"]) for part in parts) == len(batch.ids)
    assert sum(int(part["attention_mask"].sum()) for part in parts) == batch.tokens
    assert all(part["input_ids"].numel() <= asked.tokens for part in parts)


@pytest.mark.slow
def test_everything_is_measured_and_checked_at_toy_size(checkout: Path) -> None:
    command = [sys.executable, str(checkout / "benchmarks" / "gpu.py"), "--device", "cpu", "--small"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["checks"]) == 8 and all(row["is_right"] for row in result["checks"])
    assert len(result["cases"]) == 12
    for row in result["cases"]:
        assert row["ratio"] > 0 and row["seqbert"]["utilisation"] > 0
        assert row["seqbert"]["tokens_per_second"] > 0 < row["peer"]["tokens_per_second"]
    assert "bert-large" in done.stderr and "right: attention, causal, window 64" in done.stderr
