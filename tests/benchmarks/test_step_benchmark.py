"""The commands that measure a training step and its memory, at toy size."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

SMALL = ["--model=bert-tiny", "--vocabulary=300", "--tokens=96", "--max-length=32", "--batches=2", "--passes=1"]


@pytest.fixture(scope="module")
def step(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("step")


def test_all_contenders_get_the_same_sequences_and_the_same_hidden_tokens(step: Any) -> None:
    arguments = step.parser().parse_args([*SMALL, "--tokens", "2048"])
    (batch, _) = step.batches_of(arguments)
    packed, padded = step.pack_batch(batch), step.pad_batch(batch, None)
    lengths = padded["attention_mask"].sum(1)
    assert sorted(lengths.tolist()) == list(packed.lengths)
    target = packed.targets["masked_lm"]
    assert sorted(padded["labels"][padded["labels"] >= 0].tolist()) == sorted(target.labels.tolist())
    rows = {tuple(ids[:length].tolist()) for ids, length in zip(padded["input_ids"], lengths, strict=True)}
    assert {tuple(ids.tolist()) for ids in packed.ids.split(packed.lengths)} == rows
    assert len(target.index) / packed.tokens == pytest.approx(0.15, abs=0.02)
    assert (packed.ids[target.index] == step.MASK).float().mean().item() == pytest.approx(0.8, abs=0.1)
    assert batch.tokens / len(batch.ids) == pytest.approx(0.4 * 32, rel=0.1)
    grouped = step.batches_of(arguments, "transformers_grouped")
    assert all(one.tokens / one.padded_tokens > 0.95 for one in grouped) and batch.tokens < 0.5 * batch.padded_tokens


def test_products_are_those_of_the_step_and_their_time_is_the_products_alone(step: Any, tmp_path: Path) -> None:
    arguments = step.parser().parse_args([*SMALL, "--precision", "fp32"])
    (batch, _) = step.batches_of(arguments)
    loop = step.our_loop(arguments, tmp_path)
    packed = step.pack_batch(batch)
    calls = step.products_of(loop, packed)
    blocks, width = 2, 128
    forward = [
        operands for _, operands in calls if operands[-1][0] == (width, width) and operands[-2][0][0] == packed.tokens
    ]
    # Query, key and value of both blocks and the first's output, forward and backward; the last block's output and the
    # feed-forward after it run on the targets alone.
    assert len(forward) == 2 * (3 * blocks + 1)
    assert any(operands[-2][0] == (len(packed.targets["masked_lm"].index), 4 * width) for _, operands in calls)
    step.replay(calls)()
    rows = {"seqbert": {"tokens_per_second": 60.0}, "products": {"tokens_per_second": 80.0}}
    assert step.ratios(rows) == {"share of the products' rate": 0.75}


@pytest.mark.slow
def test_one_command_measures_ours_against_the_peer(checkout: Path) -> None:
    command = [sys.executable, checkout / "benchmarks" / "step.py", *SMALL, "--only", "seqbert", "transformers"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["contenders"]) == {"seqbert", "transformers"}
    rates = {name: row["tokens_per_second"] for name, row in report["contenders"].items()}
    assert report["ratios"]["seqbert / transformers"] == pytest.approx(rates["seqbert"] / rates["transformers"], 0.01)
    assert report["contenders"]["seqbert"]["padding_efficiency"] == 1


def test_the_peak_of_a_step_is_what_it_holds_at_once(load_benchmark: Callable[[str], ModuleType], step: Any) -> None:
    memory = load_benchmark("memory")

    def run() -> None:
        for _ in range(3):
            held = [torch.empty(1000, 1000), torch.empty(500, 1000)]
            del held

    assert memory.recorded_peak(run) == pytest.approx(6e6, rel=0.01)
    arguments = step.parser().parse_args(SMALL)
    assert memory.ratios({"seqbert": {"peak_bytes": [1, 2]}, "transformers": {"peak_bytes": [5, 3]}}) == {
        "transformers / seqbert": 2.5
    }
    found = memory.peaks(arguments, "seqbert")
    assert np.all(np.array(found["peak_bytes"]) > 0) and found["gradient_bytes"] > 0


def test_a_profile_names_the_kinds_of_work(step: Any) -> None:
    table = step.profile(step.parser().parse_args([*SMALL, "--profile"]), "seqbert")
    assert "ms a step" in table and "matrix products" in table and "optimizer and clipping" in table
