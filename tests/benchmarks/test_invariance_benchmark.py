"""The command that shows what a run does not depend on."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def invariance(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("invariance")


def write_measured(folder: Path, way: str, gradient: float, loss: float, resumed: str, job: str = "job") -> None:
    (folder / way).mkdir()
    found = {"losses": [2.0, loss], "bytes": {"first": way, "resumed": resumed}, "pieces": [4, 5]}
    (folder / way / f"{job}.json").write_text(json.dumps(found), encoding="utf-8")
    np.savez(folder / way / f"{job}.npz", **{"0": np.array([gradient, -2.0])})


def test_what_is_beyond_a_limit_is_named(invariance: ModuleType, tmp_path: Path) -> None:
    one, four, eight, ranks, *_ = (invariance.Way(name) for name in ("1x8", "4x2", "8x1", "2 ranks"))
    write_measured(tmp_path, "1x8", 1.0, 1.5, "1x8")
    write_measured(tmp_path, "4x2", 1.0 + 1e-13, 1.5 + 1e-6, "4x2")
    write_measured(tmp_path, "8x1", 1.0 + 1e-11, 1.5 + 2e-5, "other")
    write_measured(tmp_path, "2 ranks", float("nan"), float("nan"), "2 ranks")
    report = invariance.compared(tmp_path, [one, four, eight, ranks], ["job"])
    assert report["broken"] == [
        "job, 8x1: gradients differ by 5.0e-12",  # of a tensor whose largest is 2
        "job, 8x1: losses differ by 2.0e-05",
        "job, 8x1: not the same bytes",
        "job, 2 ranks: gradients differ by nan",
        "job, 2 ranks: losses differ by nan",
    ]
    printed = "\n".join(invariance.lines(report | {"seconds": 1.0}))
    assert "DIFFER" in printed and "4-5" in printed and printed.endswith("5 limits are broken")


@pytest.mark.parametrize(("difference", "is_broken"), [(5e-4, False), (2e-3, True)])
def test_losses_with_muon_may_differ_by_a_thousandth(
    invariance: ModuleType, difference: float, is_broken: bool, tmp_path: Path
) -> None:
    """Its updates are made orthogonal in bf16."""
    write_measured(tmp_path, "1x8", 1.0, 1.5, "1x8", job="Muon")
    write_measured(tmp_path, "4x2", 1.0, 1.5 + difference, "4x2", job="Muon")
    broken = invariance.compared(tmp_path, [invariance.Way("1x8"), invariance.Way("4x2")], ["Muon"])["broken"]
    assert broken == (["Muon, 4x2: losses differ by 2.0e-03"] if is_broken else [])


def test_other_workers_are_to_give_the_bytes_of_none(invariance: ModuleType, tmp_path: Path) -> None:
    write_measured(tmp_path, "1x8", 1.0, 1.5, "1x8")
    write_measured(tmp_path, "4 workers", 1.0, 1.5, "4 workers")
    ways = [invariance.Way("1x8"), invariance.Way("4 workers", workers=4)]
    assert invariance.compared(tmp_path, ways, ["job"])["broken"] == ["job, 4 workers: not the same bytes"]


def test_gradients_that_are_only_rounding_are_compared_with_the_largest_of_the_model(invariance: ModuleType) -> None:
    large, rounding = np.array([4.0, -1.0]), np.array([1e-17])
    assert invariance.relative_difference({"a": large, "b": rounding}, {"a": large, "b": -rounding}) < 1e-16
    small = np.array([1e-6])
    assert invariance.relative_difference({"a": large, "b": small}, {"a": large, "b": 2 * small}) == 1.0
    assert invariance.relative_difference({"a": large, "b": small}, {"a": large}) == float("inf")


def test_labelled_records_are_of_equal_length_so_that_a_batch_of_8_is_cut_as_the_ways_say(
    invariance: ModuleType, tmp_path: Path
) -> None:
    invariance.write_data(tmp_path / "data", random.Random(0))
    for task in ("classification", "tagging", "span", "choice"):
        lengths = set()
        for line in (tmp_path / "data" / f"{task}.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            first = record.get("sequence") or record.get("question") or record["context"]
            seconds = record["choices"] if task == "choice" else [record["context"]] if task == "span" else []
            lengths |= {len(first) + len(second) + 3 for second in seconds} or {len(first) + 2}
        assert lengths == {32}


@pytest.mark.slow
def test_nothing_depends_on_pieces_workers_or_processes(checkout: Path) -> None:
    command = [sys.executable, str(checkout / "benchmarks" / "invariance.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["broken"] == []
    assert list(report["jobs"]) == ["next sentence", "joint", "tagging", "Muon"]
    assert report["jobs"]["tagging"]["4x2"]["pieces"] == [4, 4]
    # float32 sums in another order are not the same: that differences are found shows that they are looked for.
    assert report["jobs"]["tagging"]["4x2"]["losses"] > 0
