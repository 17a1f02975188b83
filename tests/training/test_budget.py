"""Runs that have minutes: they end on time, with a rate that has decayed, whatever the machine does."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import labelled
import pytest
import runs

import seqbert
from seqbert.errors import ConfigError
from seqbert.models.model import Model
from seqbert.training import budget as budget_module
from seqbert.training.budget import Budget
from seqbert.training.schedules import WSDConfig

MINUTES = 10.0


class Clock:
    """A clock that stands still until it is set forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budget_module, "monotonic", clock)
    return clock


Pace = Callable[[int], float]
DRAW = random.Random(0)
MACHINES: dict[str, Pace] = {
    "steady": lambda step: 0.5,
    "slow at first": lambda step: 20.0 if step == 0 else 0.5,
    "uneven": lambda step: DRAW.uniform(0.2, 0.8) + 2 * (step % 13 == 0),
    "slower by half from some step on": lambda step: 0.5 if step < 500 else 0.75,
    "twice as fast from some step on": lambda step: 1.0 if step < 300 else 0.5,
    "with batches that grow": lambda step: 0.05 * 2 ** min(step // 100, 4),
    "of few long steps": lambda step: 9.0,
}


def walked(clock: Clock, pace: Pace, evaluation: float = 5.0, saving: float = 1.0, most: int | None = None) -> Budget:
    """A run as the loop goes through it; gives its budget at the end."""
    budget = Budget(most, MINUTES, evaluate_every=100, checkpoint_every=30)
    step = 0
    while True:
        if step % 100 == 0 or step == budget.planned:
            clock.now += evaluation
            budget.evaluated()
        elif step % 30 == 0:
            clock.now += saving
            budget.saved()
        if step >= budget.planned:
            return budget
        budget.planned = budget.plan(step)
        clock.now += pace(step)
        step += 1
        budget.stepped()


@pytest.mark.parametrize("machine", MACHINES)
def test_a_run_ends_on_time_on_a_machine_that_is(machine: str, clock: Clock) -> None:
    assert walked(clock, MACHINES[machine]).spent == pytest.approx(60 * MINUTES, rel=0.05)


def test_validations_that_take_half_of_the_time_are_in_it(clock: Clock) -> None:
    budget = walked(clock, lambda step: 0.3, evaluation=30.0)
    assert budget.spent == pytest.approx(60 * MINUTES, rel=0.05)
    assert budget.planned == pytest.approx(1000, rel=0.1)  # 30 s a hundred steps of 0.3 s


def test_steps_are_the_most_there_are_where_time_would_be_left(clock: Clock) -> None:
    budget = walked(clock, lambda step: 0.5, most=200)
    assert budget.planned == 200 and budget.spent < 150


def test_the_plan_changes_little_once_the_pace_is_known(clock: Clock) -> None:
    budget, plans = Budget(None, MINUTES, 10**6, 10**6), []
    for step in range(1000):
        plans.append(budget.plan(step))
        clock.now += 0.5 + 0.1 * DRAW.random()
        budget.stepped()
    assert max(abs(two / one - 1) for one, two in pairwise(plans[50:])) < 0.01


def test_a_run_whose_steps_so_far_were_not_timed_is_planned_once_they_are(clock: Clock) -> None:
    budget = Budget(None, MINUTES, 10**6, 10**6, step=5000)
    assert budget.planned > 5000
    for step in range(5000, 5010):
        budget.planned = budget.plan(step)
        clock.now += 0.5
        budget.stepped()
    assert budget.planned == pytest.approx(5000 + 1200, abs=2)


def test_a_resumed_run_knows_what_steps_validations_and_checkpoints_cost(clock: Clock) -> None:
    """Its steps began small and its last validation was long ago: neither the mean nor this sitting would tell."""
    before = Budget(None, MINUTES, evaluate_every=100, checkpoint_every=50)
    for step in range(1, 200):
        clock.now += 0.1 if step < 100 else 1.0
        before.stepped()
        if step % 100 == 0:
            clock.now += 30
            before.evaluated()
    pace, evaluation, _ = before.costs
    assert (round(pace, 6), round(evaluation, 6)) == (1.0, 30.0)
    after = Budget(None, MINUTES, 100, 50, 199, before.spent, before.planned, before.costs)
    assert after.plan(199) == pytest.approx(before.plan(199), abs=1)


SECONDS_OF_A_STEP = 0.5


@pytest.fixture
def timed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock that a forward pass in training sets forward, and one in validation less."""
    forward = Model.forward

    def passing(self: Model, *arguments: Any, **options: Any) -> Any:
        clock.now += SECONDS_OF_A_STEP if self.training else 0.1
        return forward(self, *arguments, **options)

    monkeypatch.setattr(Model, "forward", passing)
    return clock


def settings(folder: Path, minutes: float, **training: Any) -> dict[str, Any]:
    """A run of so many minutes whose steps are one forward pass."""
    schedule = {"name": "wsd", "warmup": 5, "decay": 0.3}
    own = {"steps": None, "minutes": minutes, "evaluate_every": 20, "schedule": schedule, "tokens_per_step": 128}
    return runs.settings(folder, training=own | training, run={"log_every": 1, "checkpoint_every": 10})


def steps_of(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def test_a_run_of_minutes_trains_that_long_and_ends_with_a_rate_that_has_decayed(timed: Clock, tmp_path: Path) -> None:
    begun = timed.now
    seqbert.pretrain(settings(tmp_path, minutes=0.5))
    assert timed.now - begun == pytest.approx(30, rel=0.05)
    rows, result = steps_of(tmp_path / "run"), json.loads((tmp_path / "run" / "result.json").read_text())
    steps = result["steps"]
    assert result["seconds"] == pytest.approx(30, rel=0.05)
    assert rows[-1]["step"] == rows[-1]["planned_steps"] == steps
    assert rows[-1]["learning_rate"] == pytest.approx(1e-3 * WSDConfig(warmup=5, decay=0.3).factor(steps - 1, steps))
    assert max(row["learning_rate"] for row in rows) == 1e-3 and rows[-1]["learning_rate"] < 1e-4
    assert result["domains"]["text"]["after"]["masked_lm_loss"] is not None


def test_a_run_of_minutes_goes_on_with_what_is_left_of_them(timed: Clock, tmp_path: Path) -> None:
    tree = settings(tmp_path, minutes=0.5)
    seqbert.pretrain(tree)
    run = tmp_path / "run"
    whole = json.loads((run / "result.json").read_text())
    timed.now += 5000  # nobody trains meanwhile
    seqbert.pretrain(tree, resume="auto")
    assert json.loads((run / "result.json").read_text())["steps"] == whole["steps"]  # it is done
    for path in (run / "checkpoints").iterdir():
        if path.name > "step-00000020":
            shutil.rmtree(path)
    left = 30 - json.loads((run / "checkpoints" / "step-00000020" / "state.json").read_text())["seconds"]
    begun = timed.now
    seqbert.pretrain(tree, resume="auto")
    assert timed.now - begun == pytest.approx(left, rel=0.1)
    assert json.loads((run / "result.json").read_text())["seconds"] == pytest.approx(30, rel=0.05)


def test_a_run_is_given_more_minutes_and_not_fewer_than_it_has_trained(timed: Clock, tmp_path: Path) -> None:
    seqbert.pretrain(settings(tmp_path, minutes=0.3))
    with pytest.raises(ConfigError, match=r"has trained for 0\.\d+ minutes already, and is to have 0\.1"):
        seqbert.pretrain(settings(tmp_path, minutes=0.1), resume="auto", allow_changes=True)
    begun = timed.now
    seqbert.pretrain(settings(tmp_path, minutes=0.6), resume="auto", allow_changes=True)
    assert timed.now - begun == pytest.approx(18, rel=0.1)


def test_fine_tuning_has_minutes_too(timed: Clock, tmp_path: Path) -> None:
    tree = labelled.settings(tmp_path, training={"epochs": None, "minutes": 0.3})
    begun = timed.now
    seqbert.finetune(tree)
    rows, result = steps_of(tmp_path / "run"), json.loads((tmp_path / "run" / "result.json").read_text())
    assert rows[-1]["seconds"] == pytest.approx(18, rel=0.1) and timed.now - begun >= 16
    assert result["steps"] == {"0": rows[-1]["planned_steps"]} and rows[-1]["learning_rate"] < 1e-4


def test_minutes_or_steps_say_how_long_and_a_config_has_1000_steps_where_neither_does(tmp_path: Path) -> None:
    from seqbert.training.finetune_config import FinetuneTrainingConfig
    from seqbert.training.pretrain_config import PretrainTrainingConfig

    assert PretrainTrainingConfig().steps == 1000 and FinetuneTrainingConfig().epochs == 3
    assert PretrainTrainingConfig(minutes=5).steps is None and FinetuneTrainingConfig(minutes=5).epochs is None
    assert PretrainTrainingConfig(minutes=5, steps=7).steps == 7
    for config in (PretrainTrainingConfig, FinetuneTrainingConfig):
        with pytest.raises(ConfigError, match="minutes is 0"):
            config(minutes=0)
