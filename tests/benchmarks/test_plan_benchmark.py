"""The command that measures plans, the loader and checkpoints, at small sizes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def run(checkout: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """What was printed as JSON, and what went to standard error."""
    command = [sys.executable, checkout / "benchmarks" / "plan.py", "--seconds", "0.01", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_plans_of_several_sizes_and_layouts_are_measured(
    load_benchmark: Callable[[str], ModuleType],
    checkout: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    benchmark = load_benchmark("plan")
    monkeypatch.setattr(benchmark, "STEPS", (64, 512))  # larger ones take seconds
    rows = benchmark.collect(benchmark.measure_plans(tmp_path, 12_000, 0.001), {"layout": lambda row: row["layout"]})
    assert [row["layout"] for row in rows] == ["one group", "100 in order", "100 shuffled"] * 2
    assert [round(row["sequences"], -3) for row in rows[::3]] == [10_000, 12_000]
    for row in rows:
        assert row["sequences"] >= row["documents"]
        assert row["steps_of_512"]["sequences_per_second"] > 0 and row["cold_step_seconds"] > 0
        assert row["mapped_bytes"] == (8 if row["layout"] == "one group" else 10) * row["documents"]
        assert row["crossing_step_seconds"] is None  # there is one block
    assert len(capsys.readouterr().err.splitlines()) == 1 + len(rows)


@pytest.mark.slow
def test_a_plan_of_a_million_sequences_holds_a_tenth_of_a_byte_for_each(checkout: Path) -> None:
    report, _ = run(checkout, "--sequences", 1_000_000)
    one = next(row for row in report["plan"] if row["layout"] == "one group" and row["sequences"] > 500_000)
    assert one["held_bytes"] < one["sequences"] / 10
    assert one["crossing_step_seconds"] > 0


@pytest.mark.slow
def test_the_loader_is_measured_for_single_sequences_and_for_pairs(checkout: Path) -> None:
    report, _ = run(checkout, "--loader", "--tokens", 20_000)
    rows = report["loader"]
    assert {(row["pair"], row["ranks"]) for row in rows} == {
        (pair, ranks) for pair in ("none", "next_sentence") for ranks in (1, 8, 64)
    }
    for row in rows:
        assert row["tokens"] <= row["tokens_of_global_batch"]
        assert row["ranks"] > 1 or row["tokens"] > 0.9 * row["tokens_of_global_batch"]
        assert row["bytes"] > 4 * row["tokens"]  # ids, segment ids and positions, in as few bytes as they need


@pytest.mark.slow
def test_a_checkpoint_that_is_written_has_the_computed_size(checkout: Path) -> None:
    report, _ = run(checkout, "--checkpoints", "bert-tiny")
    tiny, *others = report["checkpoints"]
    assert tiny["written_bytes"] == pytest.approx(tiny["bytes"], rel=0.01)
    assert 0 < tiny["waiting_seconds"] < tiny["seconds"]
    large = others[-1]
    # Devlin et al. 2019 count 340M parameters for BERT-large; weights and two moments in fp32 are 12 bytes each.
    assert large["preset"] == "bert-large" and large["bytes"] == pytest.approx(12 * 340e6, rel=0.02)
    assert all("seconds" not in row for row in others)


def test_it_says_what_can_be_measured_where_nothing_is_asked_for(checkout: Path) -> None:
    command = [sys.executable, str(checkout / "benchmarks" / "plan.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--sequences, --loader or --checkpoints" in done.stderr
