"""Going on with a run: in the same way, in another way, or not at all."""

import dataclasses
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import labelled
import numpy as np
import pytest
import runs
import yaml
from children import Child, in_step
from safetensors.torch import load_file

import seqbert
from seqbert import config as config_tree
from seqbert.cli import main
from seqbert.data.plan import EXTRA, Plan
from seqbert.data.records import Batcher
from seqbert.errors import CheckpointError, ConfigError, Stopped, TrainingError
from seqbert.models.hub import read_checkpoint
from seqbert.models.model import Model
from seqbert.training.checkpoint import find_damage
from seqbert.training.logging import TIMED
from seqbert.training.loop import Loop
from seqbert.training.pretrain_config import load_config
from seqbert.training.run_folder import RunFolder

AtStep = Callable[[int, Callable[[], object]], None]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMED} for row in rows]


def result(folder: Path) -> dict[str, Any]:
    """What a run reached, without how it went."""
    tree = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in tree.items() if key not in ("notes", "seconds")}


def checkpoint(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:08d}"


def damage(path: Path) -> None:
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> AtStep:
    """A function that has something done in the middle of a step, counted from 1."""
    now = 0

    def at(step: int, act: Callable[[], object]) -> None:
        train, forward, done = Loop._step, Model.forward, []

        def in_step(self: Loop, number: int, *arguments: Any) -> Any:
            nonlocal now
            now = number + 1
            try:
                return train(self, number, *arguments)
            finally:
                now = 0

        def in_model(self: Model, *arguments: Any) -> Any:
            if now == step and not done:
                done.append(step)
                act()
            return forward(self, *arguments)

        monkeypatch.setattr(Loop, "_step", in_step)
        monkeypatch.setattr(Model, "forward", in_model)

    return at


@contextmanager
def stopped() -> Iterator[None]:
    with pytest.raises(Stopped):
        yield


def stop() -> None:
    signal.raise_signal(signal.SIGTERM)


@dataclasses.dataclass
class Drawn:
    """What the steps of training drew, in turn: sequences of records, or documents and places there.

    Attributes:
        items: Of all runs so far.
        epoch: How many an epoch has.
    """

    items: list[Any] = dataclasses.field(default_factory=list)
    epoch: int = 0

    def take(self) -> list[Any]:
        """The items so far; the next ones are another run's."""
        taken, self.items = self.items, []
        return taken

    def epochs(self, items: list[Any]) -> list[list[Any]]:
        """Items in pieces of an epoch each."""
        return [items[first : first + self.epoch] for first in range(0, len(items), self.epoch)]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    found = Drawn()
    records, windows, train = Batcher.step, Plan.step, Loop._step
    newest: list[Any] = []

    def of_records(self: Batcher, *arguments: Any) -> np.ndarray:
        numbers = records(self, *arguments)
        found.epoch, newest[:] = self.total, numbers.tolist()
        return numbers

    def of_windows(self: Plan, *arguments: Any) -> Any:
        stretches = windows(self, *arguments)
        ordered = stretches[stretches.place < EXTRA]
        found.epoch, newest[:] = self.total, zip(ordered.document.tolist(), ordered.start.tolist(), strict=True)
        return stretches

    def step(self: Loop, *arguments: Any) -> Any:
        drawn = newest.copy()
        result = train(self, *arguments)  # or it is stopped before it begins
        found.items += drawn
        return result

    monkeypatch.setattr(Batcher, "step", of_records)
    monkeypatch.setattr(Plan, "step", of_windows)
    monkeypatch.setattr(Loop, "_step", step)
    return found


# the same run


@pytest.mark.slow
def test_row62_a_fine_tuning_run_that_is_stopped_after_each_epoch_draws_the_orders_of_one_that_is_not(
    tmp_path: Path, drawn: Drawn, at_step: AtStep
) -> None:
    tree = labelled.settings(tmp_path, training={"epochs": 3})
    whole = seqbert.finetune(tree).folder
    expected = drawn.take()
    again = {**tree, "output": str(tmp_path / "again")}
    for step in (6, 12):  # 45 records, 8 a step
        at_step(step, stop)
        with stopped():
            seqbert.finetune(again, resume="auto")
        assert len(drawn.items) == step // 6 * drawn.epoch
    seqbert.finetune(again, resume="auto")
    assert drawn.take() == expected
    first, second, third = drawn.epochs(expected)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third != first
    assert weights(tmp_path / "again") == weights(whole)


def test_row62_a_pretraining_run_that_is_stopped_after_each_epoch_draws_the_orders_of_one_that_is_not(
    tmp_path: Path, drawn: Drawn, at_step: AtStep
) -> None:
    tree = runs.settings(tmp_path, training={"tokens_per_step": 1024, "steps": 12, "evaluate_every": 6})
    whole = seqbert.pretrain(tree).folder
    expected = drawn.take()
    a_step = len(expected) // 12
    again = {**tree, "output": str(tmp_path / "again")}
    for epoch in (1, 2):
        at_step(epoch * drawn.epoch // a_step, stop)
        with stopped():
            seqbert.pretrain(again, resume="auto")
    seqbert.pretrain(again, resume="auto")
    assert drawn.take() == expected
    first, second, third = ([document for document, _ in epoch] for epoch in drawn.epochs(expected)[:3])
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third != first
    assert weights(tmp_path / "again") == weights(whole)
    assert metrics(tmp_path / "again") == metrics(whole)


def test_a_run_of_the_shipped_recipe_that_is_stopped_ends_with_the_weights_of_one_that_is_not(
    tmp_path: Path, at_step: AtStep
) -> None:
    """What weights begin with, heads at their neighbours and biases at frequencies, is not laid over them again."""
    recipe = config_tree.to_dict(load_config("text/pretrain"))
    shape = {"preset": "modern-tiny", "num_hidden_layers": 1, "max_position_embeddings": 64}
    training = {"optimizer": recipe["training"]["optimizer"], "learning_rate": recipe["training"]["learning_rate"]}
    tree = runs.settings(tmp_path, training=training)
    tree |= {"model": recipe["model"] | shape, "objective": recipe["objective"]}
    assert (tree["model"]["attention_init"], tree["model"]["bias_init"]) == ("neighbours", "unigram")
    assert tree["training"]["optimizer"]["name"] == "muon"
    whole = seqbert.pretrain(tree).folder
    again = {**tree, "output": str(tmp_path / "again")}
    at_step(2, stop)
    with stopped():
        seqbert.pretrain(again, resume="auto")
    seqbert.pretrain(again, resume="auto")
    assert weights(tmp_path / "again") == weights(whole)


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_a_finished_run_that_is_resumed_says_so_and_stays_as_it_is(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = getattr(seqbert, command)
    tree = (runs if command == "pretrain" else labelled).settings(tmp_path)
    folder = run(tree).folder
    before = weights(folder), metrics(folder), result(folder)
    capsys.readouterr()
    run(tree, resume="auto")
    assert "steps are done: there is nothing left to train" in capsys.readouterr().err
    assert (weights(folder), metrics(folder), result(folder)) == before


def test_a_folder_without_a_run_is_begun_by_resume_auto_which_says_so(tmp_path: Path) -> None:
    resumed = seqbert.pretrain(runs.settings(tmp_path), resume="auto")
    assert "There is no checkpoint yet: the run starts at step 0." in resumed.notes


def test_row66_a_damaged_newest_checkpoint_is_named_and_the_run_ends_the_same(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    before = weights(folder), metrics(folder)
    damage(checkpoint(folder, 8))
    shutil.rmtree(folder / "model")
    resumed = seqbert.pretrain(runs.settings(tmp_path), resume="auto")
    assert any("step-00000008" in note and "damaged" in note for note in resumed.notes)
    assert any("Going on after step 6" in note for note in resumed.notes)
    assert (weights(folder), metrics(folder)) == before


def test_row66_where_all_checkpoints_are_damaged_each_is_named_and_the_run_begins_again(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    before = weights(folder), metrics(folder)
    for step in (3, 4, 6, 8):
        damage(checkpoint(folder, step))
    resumed = seqbert.pretrain(runs.settings(tmp_path), resume="auto")
    assert sum("damaged" in note for note in resumed.notes) == 4
    assert any("starts at step 0" in note for note in resumed.notes)
    assert (weights(folder), metrics(folder)) == before


def test_a_run_whose_folder_was_moved_goes_on_there_and_so_it_does_with_data_that_was_moved_too(tmp_path: Path) -> None:
    tree = runs.settings(tmp_path)
    whole = seqbert.pretrain(tree).folder
    moved, texts = tmp_path / "moved", tmp_path / "elsewhere"
    for step in (6, 8):
        shutil.rmtree(checkpoint(whole, step))
    before = weights(whole), metrics(whole)
    whole.rename(moved)
    seqbert.pretrain(moved / "config.yaml", ["--output", str(moved)], resume="auto")
    assert (weights(moved), metrics(moved)) == before
    for step in (6, 8):
        shutil.rmtree(checkpoint(moved, step))
    (tmp_path / "texts").rename(texts)
    overrides = ["--output", str(moved), "--domains.text.data", json.dumps([str(texts)])]
    with pytest.raises(ConfigError, match="domains.text.data"):
        seqbert.pretrain(moved / "config.yaml", overrides, resume="auto")
    seqbert.pretrain(moved / "config.yaml", overrides, resume="auto", allow_changes=True)
    assert (weights(moved), metrics(moved)) == before


def test_a_checkpoint_that_is_named_must_be_there_and_intact(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        seqbert.pretrain(runs.settings(tmp_path), resume=str(checkpoint(folder, 5)))
    damage(checkpoint(folder, 3))
    with pytest.raises(CheckpointError, match=r"step-00000003.*damaged"):
        seqbert.pretrain(runs.settings(tmp_path), resume=str(checkpoint(folder, 3)))


# a run that goes on in another way


def test_row64_micro_batches_and_precision_may_be_others_and_that_is_said(tmp_path: Path, at_step: AtStep) -> None:
    at_step(4, stop)
    with stopped():
        seqbert.pretrain(runs.settings(tmp_path))
    other = {"micro_tokens": 64, "precision": "bf16"}
    notes = seqbert.pretrain(runs.settings(tmp_path, run=other), resume="auto").notes
    (note,) = [note for note in notes if "instead of" in note]
    assert "micro_tokens 64 instead of" in note and "precision bf16 instead of fp32" in note


def test_row64_other_micro_batches_give_the_same_losses_up_to_rounding(tmp_path: Path, at_step: AtStep) -> None:
    tree = runs.settings(tmp_path, model={"dropout": 0.0})
    whole = metrics(seqbert.pretrain(tree).folder)
    at_step(4, stop)
    again = {**tree, "output": str(tmp_path / "again")}
    with stopped():
        seqbert.pretrain(again)
    seqbert.pretrain(again, ["--run.micro_tokens", "64"], resume="auto")
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (whole, metrics(tmp_path / "again"))]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_row64_fine_tuning_with_another_batch_is_refused_or_goes_on_at_the_right_record(
    tmp_path: Path, drawn: Drawn, at_step: AtStep
) -> None:
    at_step(3, stop)
    with stopped():
        seqbert.finetune(labelled.settings(tmp_path))
    assert len(drawn.items) == 24 and drawn.epoch == 45
    other = labelled.settings(tmp_path, training={"batch_size": 4})
    with pytest.raises(ConfigError, match=r"training.batch_size: 8 -> 4.*--allow-changes"):
        seqbert.finetune(other, resume="auto")
    notes = seqbert.finetune(other, resume="auto", allow_changes=True).notes
    assert "It goes on with another config: training.batch_size: 8 -> 4." in notes
    first, second = drawn.epochs(drawn.take())
    assert sorted(first) == sorted(second) == list(range(45))  # in each epoch each record once


def test_row64_pretraining_with_another_batch_goes_on_at_the_right_window(
    tmp_path: Path, drawn: Drawn, at_step: AtStep
) -> None:
    seqbert.pretrain(runs.settings(tmp_path))
    expected = drawn.take()
    tree = runs.settings(tmp_path, output=str(tmp_path / "again"))
    at_step(3, stop)
    with stopped():
        seqbert.pretrain(tree)
    before = len(drawn.items)
    tree["training"] |= {"tokens_per_step": 256, "steps": 12}
    seqbert.pretrain(tree, resume="auto", allow_changes=True)
    items = drawn.take()
    assert len(items) > before + drawn.epoch / 2
    assert items == expected[: len(items)]


def test_another_objective_is_refused_with_the_difference_or_goes_on_and_says_what_begins_anew(
    tmp_path: Path, at_step: AtStep
) -> None:
    at_step(4, stop)
    with stopped():
        seqbert.pretrain(runs.settings(tmp_path))
    other = runs.settings(tmp_path, objective={"pair": "next_sentence"})
    with pytest.raises(ConfigError, match='objective.pair: "none" -> "next_sentence"'):
        seqbert.pretrain(other, resume="auto")
    resumed = seqbert.pretrain(other, resume="auto", allow_changes=True)
    (anew,) = [note for note in resumed.notes if note.startswith("Weights that begin anew")]
    assert "heads.text.pair" in anew and "encoder" not in anew
    assert "next_sentence_loss" in resumed.domains["text"].after


def test_another_vocabulary_is_refused_with_the_difference_or_goes_on_and_says_what_begins_anew(
    tmp_path: Path,
) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    changes = {"domains": {"text": {"vocab_size": 60}}, "training": {"steps": 10}}
    other = runs.settings(tmp_path, **changes)
    with pytest.raises(ConfigError, match="vocab_size: 120 -> 60"):
        seqbert.pretrain(other, resume="auto")
    resumed = seqbert.pretrain(other, resume="auto", allow_changes=True)
    (anew,) = [note for note in resumed.notes if note.startswith("Weights that begin anew")]
    assert "encoder.embeddings.word.text.weight" in anew and "blocks" not in anew
    assert resumed.best_step is not None and resumed.best_step > 4  # scores of the old vocabulary decide nothing
    written = json.loads((folder / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    assert read_checkpoint(folder / "model").vocab_size == len(written) == 60


def test_another_set_of_labels_is_refused_or_begins_a_new_head_and_chooses_the_best_anew(tmp_path: Path) -> None:
    tree = labelled.settings(tmp_path)
    folder = seqbert.finetune(tree).folder
    table = tmp_path / "reviews.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, *(f"{line.rpartition(',')[0]} why,maybe" for line in lines[1:31])]) + "\n")
    with pytest.raises(ConfigError, match="The data of text is not what the run"):
        seqbert.finetune(tree, resume="auto")
    resumed = seqbert.finetune(tree, resume="auto", allow_changes=True)
    (anew,) = [note for note in resumed.notes if note.startswith("Weights that begin anew")]
    assert "classifier.weight" in anew and "blocks" not in anew
    assert resumed.best_step is not None and resumed.best_step > 12  # of the first run
    assert json.loads((folder / "task.json").read_text())["labels"] == ["maybe", "no", "yes"]
    assert seqbert.evaluate(folder, str(table))["records"] == 90


def test_other_data_that_is_allowed_is_said_and_the_best_weights_are_those_of_the_new_data(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    before = weights(folder)
    tree = runs.settings(tmp_path, training={"steps": 10})
    texts = tmp_path / "texts" / "texts.txt"
    texts.write_text(texts.read_text().translate(str.maketrans("aeiou", "zxqjk")))
    resumed = seqbert.pretrain(tree, resume="auto", allow_changes=True)
    assert any(note.startswith("The data of text is other than before") for note in resumed.notes)
    assert resumed.best_step is not None and resumed.best_step >= 8
    assert weights(folder) != before


def test_a_finished_run_may_be_made_longer(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    longer = runs.settings(tmp_path, training={"steps": 12})
    with pytest.raises(ConfigError, match="training.steps: 8 -> 12"):
        seqbert.pretrain(longer, resume="auto")
    seqbert.pretrain(longer, resume="auto", allow_changes=True)
    assert [row["step"] for row in metrics(folder) if "loss" in row] == list(range(1, 13))
    assert [row["step"] for row in metrics(folder) if "validation_text" in row] == [0, 4, 8, 12]
    assert yaml.safe_load((folder / "config.yaml").read_text())["training"]["steps"] == 12


def test_several_seeds_are_resumed_as_a_whole(tmp_path: Path) -> None:
    tree = labelled.settings(tmp_path, training={"seeds": 2})
    with pytest.raises(ConfigError, match="--resume auto"):
        seqbert.finetune(tree, resume=str(checkpoint(tmp_path / "run" / "seeds" / "0", 3)))


# bad moments


def test_two_runs_in_one_folder_are_kept_apart_and_a_killed_one_leaves_it_free(tmp_path: Path) -> None:
    tree = runs.settings(tmp_path, training={"tokens_per_step": 1024, "steps": 16, "evaluate_every": 8})
    whole = seqbert.pretrain(tree).folder
    config = tmp_path / "config.yaml"
    again = {**tree, "output": str(tmp_path / "again")}
    config.write_text(yaml.safe_dump(again), encoding="utf-8")
    with Child(tmp_path / "child", in_step(5), "pretrain", config, "--run.workers", 2) as first:
        for how in ({"resume": "auto"}, {"overwrite": True}):
            with pytest.raises(ConfigError, match="Another process is writing a run"):
                seqbert.pretrain(again, **how)  # type: ignore[arg-type]
        os.kill(first.process.pid, signal.SIGKILL)  # its workers end by themselves
        first.end()
        seqbert.pretrain(again, resume="auto")
        assert not first.group()
    assert weights(tmp_path / "again") == weights(whole)
    assert metrics(tmp_path / "again") == metrics(whole)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's
def test_a_folder_that_is_removed_under_a_run_ends_it_with_a_message_and_is_not_made_anew(
    tmp_path: Path, at_step: AtStep, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(runs.settings(tmp_path)), encoding="utf-8")
    at_step(2, lambda: shutil.rmtree(tmp_path / "run"))
    assert main(["pretrain", str(config)]) == 2
    assert "cannot be written to" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@contextmanager
def largest_file(size: int) -> Iterator[Callable[[], None]]:
    """Gives a function that limits how large a file may become, which the system refuses as it does a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (50_000, CheckpointError, r"checkpoint of step 6 cannot be written.*too large.*--resume auto"),
        (300, TrainingError, r"metrics of step 5 cannot be written.*too large.*--resume auto"),
    ],
)
def test_a_full_disk_ends_a_run_with_a_message_and_its_last_checkpoint_is_good(
    tmp_path: Path, at_step: AtStep, size: int, error: type[Exception], message: str
) -> None:
    tree = runs.settings(tmp_path, training={"evaluate_every": 8})
    whole = seqbert.pretrain({**tree, "output": str(tmp_path / "whole")}).folder
    with largest_file(size) as limit:

        def fill() -> None:
            while not checkpoint(tmp_path / "run", 3).exists():  # it is written in the background
                time.sleep(0.01)
            limit()

        at_step(5, fill)
        with pytest.raises(error, match=f"(?i){message}"):
            seqbert.pretrain(tree)
    checkpoints = tmp_path / "run" / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["step-00000003"]
    assert find_damage(checkpoint(tmp_path / "run", 3)) is None
    seqbert.pretrain(tree, resume="auto")
    assert weights(tmp_path / "run") == weights(whole)
    assert metrics(tmp_path / "run") == metrics(whole)


def test_a_full_disk_at_the_best_weights_leaves_those_before_and_no_half_ones(tmp_path: Path, at_step: AtStep) -> None:
    with largest_file(50_000) as limit:
        at_step(8, limit)
        with pytest.raises(CheckpointError, match="cannot be written"):
            seqbert.pretrain(runs.settings(tmp_path, run={"checkpoint_every": 100}))
    folder = tmp_path / "run"
    assert not [path for path in folder.iterdir() if path.name.startswith(".") and path.is_dir()]
    assert read_checkpoint(folder / "model").config.hidden_size == 32


@pytest.mark.slow
def test_a_folder_that_may_not_be_written_to_any_more_ends_a_run_with_a_message(tmp_path: Path) -> None:
    under: tuple[str, ...] = ()
    if os.geteuid() == 0:  # whom permissions do not bind
        if shutil.which("setpriv") is None:
            pytest.skip("the superuser may write anywhere, and there is no setpriv to change that")
        under = "setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(runs.settings(tmp_path)), encoding="utf-8")
    checkpoints = tmp_path / "run" / "checkpoints"
    with Child(tmp_path / "child", in_step(5), "pretrain", config, under=under) as child:
        child.wait_for(checkpoints / "step-00000004")
        checkpoints.chmod(0o555)
        child.go_on()
        assert child.end() == 2
        assert "Permission denied" in child.output and "--resume auto" in child.output
        checkpoints.chmod(0o755)
    assert {path.name for path in checkpoints.iterdir()} == {"step-00000003", "step-00000004"}
    assert find_damage(checkpoints / "step-00000003") is None


@pytest.mark.parametrize("epochs", [0.5, 1.5])
def test_a_part_of_an_epoch_is_as_long_after_a_stop(tmp_path: Path, epochs: float, at_step: AtStep) -> None:
    records = str(labelled.write_reviews(tmp_path / "few.csv", 32))  # 24 to train on, three steps of 8 an epoch
    tree = labelled.settings(tmp_path, data={"train": [records]}, training={"epochs": epochs})
    whole = seqbert.finetune(tree).folder
    tree["output"] = str(tmp_path / "stopped")
    at_step(1, stop)
    with stopped():
        seqbert.finetune(tree)
    again = seqbert.finetune(tree, resume="auto").folder
    assert [row["step"] for row in metrics(whole)] == [row["step"] for row in metrics(again)]
    assert weights(whole) == weights(again)


def test_what_a_kill_leaves_of_a_folder_that_was_being_begun_does_not_stand_in_the_way(tmp_path: Path) -> None:
    tree = runs.settings(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.yaml.writing").write_text("output: ru")
    (folder / ".lock").touch()
    assert seqbert.pretrain(tree, resume="auto").folder == folder
    assert not (folder / ".config.yaml.writing").exists()


def test_a_run_that_went_back_and_failed_does_not_go_on_with_what_it_had_left(tmp_path: Path, at_step: AtStep) -> None:
    tree = runs.settings(tmp_path)
    folder = seqbert.pretrain(tree).folder

    def fail() -> None:
        raise RuntimeError("the lights go out")

    at_step(4, fail)
    with pytest.raises(RuntimeError):
        seqbert.pretrain(tree, resume=str(checkpoint(folder, 3)))
    resumed = seqbert.pretrain(tree, resume="auto")
    assert any("Going on after step 3" in note for note in resumed.notes)
    assert [row["step"] for row in metrics(folder) if "loss" in row] == [*range(1, 9)]


def test_a_run_that_goes_back_keeps_the_best_weights_of_what_is_not_undone(tmp_path: Path) -> None:
    tree = runs.settings(tmp_path, training={"evaluate_every": 2})
    folder = seqbert.pretrain(tree).folder
    assert RunFolder(folder).has_model_of(8)
    tree["training"] |= {"learning_rate": 5.0, "clip_norm": 1e9}  # nothing better comes
    seqbert.pretrain(tree, resume=str(checkpoint(folder, 4)), allow_changes=True)
    assert RunFolder(folder).has_model_of(4)
    kept, then = (read_checkpoint(folder / "model").tensors, load_file(checkpoint(folder, 4) / "model.safetensors"))
    shared = [name for name in kept if ".blocks." in name]
    assert shared and all(np.array_equal(kept[name], then[name]) for name in shared)


def test_that_the_best_is_chosen_anew_is_not_forgotten_by_a_stop(tmp_path: Path, at_step: AtStep) -> None:
    tree = runs.settings(tmp_path, training={"evaluate_every": 5})
    folder = seqbert.pretrain(tree).folder
    tree["training"] |= {"max_length": 16, "steps": 12}
    at_step(9, lambda: signal.raise_signal(signal.SIGINT) or signal.raise_signal(signal.SIGINT))  # at once
    with stopped():
        seqbert.pretrain(tree, resume="auto", allow_changes=True)
    assert json.loads((checkpoint(folder, 8) / "state.json").read_text())["best_score"] is None


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_the_best_weights_are_written_again_where_they_are_no_longer_whole(tmp_path: Path, how: str) -> None:
    tree = runs.settings(tmp_path)
    folder = seqbert.pretrain(tree).folder
    before = weights(folder)
    if how == "gone":
        shutil.rmtree(folder / "model")
    else:
        (folder / "model" / "model.safetensors").write_bytes(before[:1000] + b"?" + before[1001:])
    seqbert.pretrain(tree, resume="auto")
    assert weights(folder) == before


def test_data_that_was_moved_leaves_the_best_the_best(tmp_path: Path) -> None:
    tree = runs.settings(tmp_path, training={"evaluate_every": 2, "learning_rate": 3.0})  # the best comes early
    folder = seqbert.pretrain(tree).folder
    best = json.loads((folder / "result.json").read_text())["best_step"]
    (tmp_path / "texts").rename(tmp_path / "elsewhere")
    tree["domains"]["text"]["data"] = [str(tmp_path / "elsewhere")]
    seqbert.pretrain(tree, resume=str(checkpoint(folder, 6)), allow_changes=True)
    assert best < 6 and json.loads((folder / "result.json").read_text())["best_step"] == best


def test_a_run_is_not_to_end_before_where_it_stands(tmp_path: Path) -> None:
    seqbert.pretrain(runs.settings(tmp_path))
    with pytest.raises(ConfigError, match="at step 8 already"):
        seqbert.pretrain(runs.settings(tmp_path, training={"steps": 5}), resume="auto", allow_changes=True)
