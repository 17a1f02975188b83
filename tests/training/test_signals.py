"""Ctrl-C and SIGTERM as a user meets them: a command in a process of its own, hit where it stands."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labelled
import pytest
import runs
import yaml
from children import FORWARD, Child, in_step

import seqbert
from seqbert.errors import Stopped
from seqbert.training import loop as loop_module
from seqbert.training.logging import TIMED
from seqbert.training.signals import StopSignals

EVALUATE = "seqbert.training.pretrain:evaluate"
SAVE = "seqbert.training.checkpoint:save_tensors"


class Job:
    """A small run: what it gives when nothing stops it, and how another one of it is started."""

    def __init__(self, folder: Path, command: str, tree: dict[str, Any]) -> None:
        self.folder, self.command, self.tree = folder, command, tree
        self.run: Callable[..., Any] = {"pretrain": seqbert.pretrain, "finetune": seqbert.finetune}[command]
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(tree), encoding="utf-8")
        self.whole = self.run(tree).folder

    def start(self, output: Path, place: str | None, *flags: object) -> Child:
        return Child(output.parent / "child", place, self.command, self.config, "--output", output, *flags)

    def resume(self, output: Path, *flags: str) -> Any:
        return self.run(self.config, ["--output", str(output), *flags], resume="auto")

    def check(self, output: Path, model: str = "model") -> None:
        """Makes sure that a run ended as the one that nothing stopped: the same bytes, the same log."""
        for name in (f"{model}/model.safetensors", f"{model}/tokenizer.json"):
            assert (self.whole / name).read_bytes() == (output / name).read_bytes()
        for log in self.whole.rglob("metrics.jsonl"):
            assert metrics(log.parent) == metrics(output / log.parent.relative_to(self.whole))
        finished, resumed = (json.loads((run / "result.json").read_text()) for run in (self.whole, output))
        for key in finished.keys() - {"notes", "seconds"}:
            assert finished[key] == resumed[key]


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMED} for row in rows]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("pretraining")
    training = {"steps": 16, "evaluate_every": 8, "tokens_per_step": 3072}  # more than fits the pipes of two workers
    return Job(folder, "pretrain", runs.settings(folder, model={"dropout": 0.1}, training=training))


@pytest.fixture(scope="module")
def finetuning(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("finetuning")
    return Job(folder, "finetune", labelled.settings(folder))


@pytest.fixture
def handlers() -> Iterator[tuple[Any, Any]]:
    """The handlers of SIGINT and SIGTERM, which are put back whatever a test does."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield before
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_the_run_finishes_its_step_and_saves(
    pretraining: Job, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with pretraining.start(output, in_step(4), "--run.workers", 2) as child:
        assert len(child.group()) == 3
        child.send(signal.SIGINT, group=True)
        child.go_on()
        assert child.end() == 130
        assert not child.group()
        assert "stopped by Ctrl-C after step 4 of 16. Its checkpoint is written in" in child.output
        assert "--resume auto" in child.output and "Traceback" not in child.output
    assert checkpoints(output) == ["step-00000003", "step-00000004"]
    assert [row["step"] for row in metrics(output) if "loss" in row] == [1, 2, 3, 4]
    resumed = pretraining.resume(output)
    assert any("Going on after step 4" in note for note in resumed.notes)
    pretraining.check(output)


def test_two_sigterms_as_torchrun_and_a_batch_system_send_them_let_a_run_save(finetuning: Job, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with finetuning.start(output, in_step(5)) as child:
        child.send(signal.SIGTERM, signal.SIGTERM, group=True)
        child.go_on()
        assert child.end() == 143
        assert "stopped by SIGTERM after step 5 of 12" in child.output
    assert checkpoints(output)[-1] == "step-00000005"
    finetuning.resume(output)
    finetuning.check(output)


def test_a_second_ctrl_c_ends_at_once_and_the_run_goes_on_from_its_last_checkpoint(
    pretraining: Job, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with pretraining.start(output, in_step(5)) as child:  # it never comes out of that step
        child.wait_for(output / "checkpoints" / "step-00000003")
        child.send(signal.SIGINT, signal.SIGINT)
        assert child.end() == 130
        assert "Traceback" not in child.output
    assert checkpoints(output) == ["step-00000003"]
    pretraining.resume(output)
    pretraining.check(output)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stops_between_the_batches_of_an_evaluation_which_the_resumed_one_does_once(
    pretraining: Job, tmp_path: Path, number: int
) -> None:
    output = tmp_path / "run"
    small = "--run.micro_tokens", 64  # many batches
    whole = tmp_path / "whole"
    seqbert.pretrain(pretraining.config, ["--output", str(whole), *map(str, small)])
    with pretraining.start(output, f"{EVALUATE}#2>{FORWARD}#2", *small) as child:
        child.send(number)
        child.go_on()
        assert child.end() == 128 + number
        assert "after step 8 of 16" in child.output
    assert checkpoints(output)[-1] == "step-00000008"
    assert not any("validation_text" in row for row in metrics(output) if row["step"] == 8)
    pretraining.resume(output, *map(str, small))
    assert metrics(output) == metrics(whole)
    model = "model/model.safetensors"
    assert (output / model).read_bytes() == (whole / model).read_bytes()


@pytest.mark.slow
def test_a_run_stops_in_the_evaluation_before_its_first_step(pretraining: Job, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pretraining.start(output, f"{EVALUATE}#1") as child:
        child.send(signal.SIGTERM)
        child.go_on()
        assert child.end() == 143
        assert "There was nothing to save yet" in child.output
    assert checkpoints(output) == []
    resumed = pretraining.resume(output)
    assert any("starts at step 0" in note for note in resumed.notes)
    pretraining.check(output)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_its_data_is_prepared_leaves_no_process_and_no_half_corpus(
    pretraining: Job, tmp_path: Path, number: int
) -> None:
    for seed in range(4):
        runs.write_texts(tmp_path / str(seed), seed=seed)
    data = json.dumps([str(tmp_path / str(seed)) for seed in range(4)])
    cache = tmp_path / "corpora"
    flags = "--run.workers", 2, "--run.corpus_dir", cache, "--domains.text.data", data
    with pretraining.start(tmp_path / "run", "seqbert.data.workers:_Worker.give#2", *flags) as child:
        assert len(child.group()) == 3
        child.send(number, group=True)
        assert child.end() == 128 + number
        assert not child.group()
        assert "stopped" in child.output and "Traceback" not in child.output
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_is_stopped_while_a_checkpoint_is_written_finishes_that_one_too(
    pretraining: Job, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with pretraining.start(output, f"{SAVE}#2") as child:  # in the background; training goes on
        child.send(signal.SIGINT)
        child.go_on()
        assert child.end() == 130
    names = checkpoints(output)
    assert names[0] == "step-00000003" and not any(name.startswith(".") for name in names)
    pretraining.resume(output)
    pretraining.check(output)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_even_while_a_checkpoint_is_written(pretraining: Job, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pretraining.start(output, f"{SAVE}#4") as child:  # that of step 6 never gets done
        child.send(signal.SIGINT, signal.SIGINT)
        assert child.end() == 130
    pretraining.resume(output)
    pretraining.check(output)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_its_best_weights_are_scored_does_that_when_it_is_resumed(
    finetuning: Job, tmp_path: Path, number: int
) -> None:
    output = tmp_path / "run"
    with finetuning.start(output, "seqbert.training.finetuned:Finetuned.evaluate#1") as child:
        child.send(number)
        assert child.end() == 128 + number
        assert "--resume auto" in child.output
    assert not (output / "result.json").exists()
    finetuning.resume(output)
    finetuning.check(output)


@pytest.mark.slow
def test_a_run_of_several_seeds_goes_on_in_the_seed_that_it_was_stopped_in(tmp_path: Path) -> None:
    job = Job(tmp_path, "finetune", labelled.settings(tmp_path, training={"seeds": 3}))
    steps = len([row for row in metrics(job.whole / "seeds" / "0") if "loss" in row])
    output = tmp_path / "stopped"
    with job.start(output, in_step(steps + 5)) as child:
        child.send(signal.SIGINT)
        child.go_on()
        assert child.end() == 130
        assert f"stopped by Ctrl-C after step 5 of {steps}" in child.output
    before = (output / "seeds" / "0" / "model" / "model.safetensors").stat().st_mtime_ns
    assert not (output / "seeds" / "2").exists()
    resumed = job.resume(output)
    assert any("Going on after step 5" in note for note in resumed.notes)
    assert (output / "seeds" / "0" / "model" / "model.safetensors").stat().st_mtime_ns == before
    job.check(output)


@pytest.mark.slow
def test_a_run_saves_even_where_nobody_reads_what_it_prints_any_more(pretraining: Job, tmp_path: Path) -> None:
    """As in ``seqbert … 2>&1 | tee log``, whose Ctrl-C ends tee first."""
    output = tmp_path / "run"
    announcement = tmp_path / "announcement"
    children = Path(sys.modules["children"].__file__ or "")
    command = [sys.executable, children, in_step(5), announcement, "pretrain", pretraining.config, "--output", output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while not announcement.exists() and process.poll() is None:
            threading.Event().wait(0.01)
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        announcement.unlink()
        assert process.wait(120) == 130
    assert checkpoints(output)[-1] == "step-00000005"


def test_handlers_are_put_back_after_a_call_and_after_an_error(
    tmp_path: Path, handlers: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(loop_module.Loop, "run", lambda self, batches: seen.append(signal.getsignal(signal.SIGTERM)))
    with pytest.raises(AttributeError):  # training gave nothing
        seqbert.pretrain(runs.settings(tmp_path))
    assert seen != [handlers[1]]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_call_that_is_stopped_raises_what_except_exception_does_not_swallow(
    tmp_path: Path, handlers: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop_module.Loop._step

    def interrupted(self: Any, step: int, *arguments: Any) -> Any:
        result = original(self, step, *arguments)
        if step == 1:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(loop_module.Loop, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt, match="after step 2 of 8") as caught:
        try:
            seqbert.pretrain(runs.settings(tmp_path))
        except Exception:
            pytest.fail("a stop was taken for an error")
    assert isinstance(caught.value, Stopped) and caught.value.signal == signal.SIGINT
    assert checkpoints(tmp_path / "run") == ["step-00000002"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_call_in_another_thread_than_the_main_one_works_and_leaves_signals_alone(
    tmp_path: Path, handlers: tuple[Any, Any]
) -> None:
    results: list[Any] = []

    def work() -> None:
        results.append(seqbert.pretrain(runs.settings(tmp_path, training={"steps": 2})))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
        thread.join(0.05)
    assert results[0].best_step == 2


def test_what_is_held_back_is_told_at_the_end_where_nobody_asked(handlers: tuple[Any, Any]) -> None:
    with pytest.raises(Stopped) as caught, StopSignals() as signals, signals.held():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.signal == signal.SIGTERM and not caught.value.at_once


def test_without_anything_to_save_the_first_signal_ends_the_work(handlers: tuple[Any, Any]) -> None:
    with pytest.raises(Stopped) as caught, StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the work went on")
    assert caught.value.signal == signal.SIGINT
