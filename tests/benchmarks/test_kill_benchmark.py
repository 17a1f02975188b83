"""The command that kills runs and compares what they end with: it kills, it sees, and nothing differs."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def kill(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("kill")


def benchmark(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "benchmarks" / "kill.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def write_run(folder: Path) -> Path:
    """What stands for the folder of a run."""
    steps = [{"step": step, "loss": 1.0 / step, "tokens_per_second": 7.0, "data_wait": 0.7} for step in (1, 2)]
    files: dict[str, Any] = {
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in [*steps, {"step": 2, "validation_text": {}}]),
        "result.json": json.dumps({"best_step": 2, "seconds": {"0": 1.5}, "notes": ["text: 3 documents"]}),
        "model/model.safetensors": "weights",
        "checkpoints/step-00000002/optimizer.safetensors": "momenta",
        "tensorboard/events.1": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def test_timings_notes_of_resuming_and_tensorboard_make_no_difference(kill: ModuleType, tmp_path: Path) -> None:
    expected, found = write_run(tmp_path / "expected"), write_run(tmp_path / "found")
    metrics = found / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("7.0", "8.5").replace("0.7", "0.0"))
    notes = ["Going on after step 1, from run/checkpoints/step-00000001.", "text: 3 documents"]
    (found / "result.json").write_text(json.dumps({"best_step": 2, "seconds": {"0": 0.1}, "notes": notes}))
    (found / "tensorboard" / "events.2").write_text("more")
    assert kill.compare(expected, found) == []


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("model/model.safetensors", "weightz", "model.safetensors differs: not the same bytes"),
        ("checkpoints/step-00000002/optimizer.safetensors", "", "optimizer.safetensors differs"),
        ("metrics.jsonl", '{"step": 1, "loss": 1.0}\n{"step": 1, "loss": 1.0}\n', "the loss of step 1 stands there 2"),
        ("metrics.jsonl", '{"step": 1, "loss": 1.0}\n{"step": 2, "lo', "metrics.jsonl differs: it cannot be read"),
        ("metrics.jsonl", '{"step": 1, "loss": 1.0}\n', "it has 1 lines and had 3"),
        ("metrics.jsonl", '{"step": 1, "loss": 1.0000001}\n', "line 1 is"),
        ("result.json", '{"best_step": 2, "notes": []}', "result.json differs"),
        (".model.writing/model.safetensors", "wei", ".model.writing/model.safetensors was left behind"),
        ("model/model.safetensors", None, "model/model.safetensors is missing"),
    ],
)
def test_what_a_run_ends_with_is_compared(
    kill: ModuleType, tmp_path: Path, file: str, content: str | None, said: str
) -> None:
    expected, found = write_run(tmp_path / "expected"), write_run(tmp_path / "found")
    if content is None:
        (found / file).unlink()
    else:
        (found / file).parent.mkdir(exist_ok=True)
        (found / file).write_text(content)
    assert said in "\n".join(kill.compare(expected, found))


def test_of_100_kills_at_least_15_are_in_each_of_the_four_places_that_matter(kill: ModuleType) -> None:
    counts = Counter(kill.quotas(100))
    assert sum(counts.values()) == 100
    assert set(counts) == set(kill.PLACES)
    assert min(counts[place] for place in ("step", "checkpoint", "evaluation", "epoch edge")) >= 15


def test_trials_are_drawn_from_the_seed_and_cover_every_job(kill: ModuleType, tmp_path: Path) -> None:
    def drawn(seed: int) -> list[tuple[str, list[str]]]:
        bench = kill.Bench(SimpleNamespace(seed=seed, tasks=[job.name for job in kill.jobs(tmp_path)]), tmp_path)
        return [(trial.job.name, trial.places) for trial in bench.draw(kill.quotas(100), 0)]

    assert drawn(0) == drawn(0) != drawn(7)
    assert {job for job, _ in drawn(0)} == {job.name for job in kill.jobs(tmp_path)}
    assert sorted(place for _, places in drawn(0) for place in places) == sorted(kill.quotas(100))


def test_a_kill_lies_ahead_of_the_newest_checkpoint(kill: ModuleType, tmp_path: Path) -> None:
    moments = [kill.Moment(0, step, "step", False, "forward", 1, False) for step in range(1, 11)]
    reference = kill.Reference(tmp_path, 1.0, moments, {0: {5}})
    draw = random.Random(0)
    steps = {kill.draw_kill(reference, "step", (0, 6), 2, draw).key[1] for _ in range(100)}
    assert steps == {7, 8}  # the first half of what is left, for there is one more to come
    assert {kill.draw_kill(reference, "epoch edge", (0, 3), 1, draw).key[1] for _ in range(100)} == {5, 6}
    assert kill.draw_kill(reference, "first step", (0, 3), 1, draw) is None


def test_a_run_that_is_killed_three_times_ends_as_if_it_had_not_been(checkout: Path) -> None:
    done = benchmark(
        checkout, "--runs", "3", "--tasks", "sentence_order", "--places", "step", "checkpoint", "evaluation"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "3 kills, 0 differ"


@pytest.mark.slow
def test_a_resume_without_the_optimizers_state_is_reported_and_fails(checkout: Path) -> None:
    done = benchmark(
        checkout, "--runs", "2", "--tasks", "causal_lm", "--places", "epoch edge", "--forget_optimizer", "--json"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["differ"] >= 1
    assert any("optimizer.safetensors differs" in line for line in report["differing"][0]["differences"])


@pytest.mark.slow
def test_ten_kills_of_all_jobs_change_nothing(checkout: Path) -> None:
    done = benchmark(checkout, "--runs", "10", "--seed", "1", "--json")
    report = json.loads(done.stdout)
    assert report["differing"] == [] and done.returncode == 0
    assert report["kills"] == 10
    assert all(report["places"].values())
