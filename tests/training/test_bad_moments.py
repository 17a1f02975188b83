"""What goes wrong in the middle of a run is said in one paragraph, and spoils nothing."""

import csv
import dataclasses
import json
import multiprocessing
import multiprocessing.reduction
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import synchronize
from pathlib import Path
from typing import Any

import batch_workers
import labelled
import pytest
import runs
import torch
from batch_workers import LETTERS, Maker

import seqbert
from seqbert.cli import main
from seqbert.data.packing import PackedBatch, Target
from seqbert.errors import ConfigError, DataError, TrainingError
from seqbert.models.hub import read_checkpoint
from seqbert.objectives import Objective
from seqbert.tasks.task import Task
from seqbert.training.loader import load_steps

SUPPORT = Path(batch_workers.__file__).parent


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def is_finite(run: Path) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in read_checkpoint(run / "model").tensors.values())


def losses(run: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


# Workers


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 1, 3, 50])
def test_batches_come_in_the_order_of_the_steps(workers: int) -> None:
    batches = load_steps([(Maker(), LETTERS)], range(3, 20), workers)
    assert [made.ids[0].item() for (made,) in batches] == list(range(3, 20))


def test_a_batch_that_went_through_a_pipe_is_the_one_that_was_made(tmp_path: Path) -> None:
    batch = PackedBatch(
        "letters",
        *(torch.arange(6) for _ in range(3)),
        torch.tensor([0, 4, 6], dtype=torch.int32),
        (4, 2),
        torch.tensor([7, 8]),
        {
            "a": Target(torch.tensor([1]), torch.tensor([[0.5]]), torch.ones(1)),
            "b": Target(torch.ones(0), torch.ones(0)),
        },
        torch.tensor([0, 1]),
    )
    ours, theirs = multiprocessing.Pipe()
    theirs.send(batch)
    found = ours.recv()
    for field in dataclasses.fields(batch):
        assert str(getattr(found, field.name)) == str(getattr(batch, field.name)), field.name
    found.ids[0] = 5  # it can be written to


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_worker_is_told_with_the_step_and_the_record(workers: int) -> None:
    batches = load_steps([(Maker("raise", at=5), LETTERS)], range(10), workers)
    assert len([next(batches) for _ in range(5)]) == 5
    told = r"batch of step 6 \(letters\) could not be made: ValueError: no such letter; record 17 of letters\.txt\."
    with pytest.raises(TrainingError, match=told) as raised:
        next(batches)
    assert "\n" not in str(raised.value) and "Traceback" not in str(raised.value)
    assert "_fail" in str(raised.value.__cause__) or workers == 0  # where it was, for --debug


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_that_the_user_can_mend_stays_what_it_is(workers: int) -> None:
    batches = load_steps([(Maker("refuse", at=0), LETTERS)], range(10), workers)
    with pytest.raises(DataError, match=r"^The record 17 is no record\.$"):
        next(batches)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("SIGKILL", r"step 3 was ended by SIGKILL.*memory runs out: lower run\.workers"),
        ("SIGBUS", r"step 3 was ended by SIGBUS.*cut off or removed"),
        ("SIGSEGV", r"step 3 was ended by SIGSEGV.*run\.workers 0"),
        ("exit", r"step 3 ended with exit code 3.*run\.workers 0"),
    ],
)
def test_a_worker_that_dies_ends_the_run_at_once_with_what_to_do(what: str, told: str) -> None:
    batches = load_steps([(Maker(what, at=2), LETTERS)], range(100), workers=2)
    assert next(batches) and next(batches)
    begun = time.monotonic()
    with pytest.raises(TrainingError, match=f"{told}.*--resume auto") as raised:
        next(batches)
    assert time.monotonic() - begun < 8 and "\n" not in str(raised.value)


def test_workers_leave_interrupts_and_terminations_to_the_main_process() -> None:
    batches = load_steps([(Maker(), LETTERS)], range(1000), workers=2)
    for process in multiprocessing.active_children():  # some have only just been started
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid or 0, number)
    assert len(list(batches)) == 1000


@pytest.mark.parametrize("ending", ["closed", "dropped"])
def test_workers_end_when_nobody_wants_their_batches(ending: str) -> None:
    batches = load_steps([(Maker("wait", at=2), LETTERS)], range(1_000_000), workers=3)
    next(batches)
    assert len(multiprocessing.active_children()) == 3
    if ending == "closed":
        batches.close()  # type: ignore[attr-defined]
    del batches
    assert not multiprocessing.active_children()


def test_nothing_goes_through_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_shared_memory(monkeypatch)
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    batches = load_steps([(Maker(), LETTERS)], range(20), workers=2)
    for _ in batches:
        now = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
        assert not {name for name in now - before if name.startswith(("torch_", "sem.mp"))}


def refuse_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full /dev/shm does to who wants a part of it."""

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", "/dev/shm")

    for name in ("_new_using_fd_cpu", "_new_using_filename_cpu", "_share_fd_cpu_", "_share_filename_cpu_"):
        monkeypatch.setattr(torch.UntypedStorage, name, full)
    monkeypatch.setattr(synchronize.SemLock, "__init__", full)


def test_a_run_does_not_need_dev_shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = seqbert.pretrain(runs.settings(tmp_path)).folder
    refuse_shared_memory(monkeypatch)
    full = seqbert.pretrain(runs.settings(tmp_path, output=str(tmp_path / "full"), run={"workers": 2})).folder
    assert weights(plain) == weights(full)


def start(*arguments: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return met


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc which processes live")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_with_a_main_process_that_is_killed(tmp_path: Path, method: str) -> None:
    program = start(batch_workers.__file__, method, tmp_path, "wait")
    try:
        assert within(60, (tmp_path / "workers").exists)
        pids = [int(pid) for pid in (tmp_path / "workers").read_text().split()]
        assert len(pids) == 2 and all(map(is_alive, pids))
    finally:
        program.kill()
        program.wait()
    assert within(5, lambda: not any(map(is_alive, pids)))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["end", "raise"])
def test_a_program_ends_though_its_workers_are_at_work(tmp_path: Path, then: str) -> None:
    program = start(batch_workers.__file__, "fork", tmp_path, then)
    program.communicate(timeout=60)
    assert program.returncode == (then == "raise")


TRAIN = """
import json, multiprocessing, sys
import seqbert
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    seqbert.pretrain(json.loads(sys.argv[2]))
"""


@pytest.mark.slow
def test_workers_that_are_forked_or_spawned_give_the_same_weights(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    expected = weights(seqbert.pretrain(runs.settings(tmp_path, objective={"pair": "next_sentence"})).folder)
    for method in ("fork", "spawn", "forkserver"):
        tree = runs.settings(
            tmp_path, output=str(tmp_path / method), objective={"pair": "next_sentence"}, run={"workers": 2}
        )
        program = start(tmp_path / "train.py", method, json.dumps(tree))
        said, _ = program.communicate(timeout=120)
        assert program.returncode == 0, said
        assert weights(tmp_path / method) == expected


def test_a_worker_that_is_killed_in_a_run_leaves_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Objective.examples

    def deadly(self: Objective, source: Any, step: int, *share: Any) -> PackedBatch:
        if step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, source, step, *share)

    config = tmp_path / "config.json"
    config.write_text(json.dumps(runs.settings(tmp_path, run={"workers": 2})))
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "examples", deadly)
        assert main(["pretrain", str(config)]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("seqbert: ")]
    assert len(told) == 1 and re.search(r"step 5 was ended by SIGKILL", told[0])
    assert main(["pretrain", str(config), "--resume", "auto"]) == 0
    whole = seqbert.pretrain(runs.settings(tmp_path, output=str(tmp_path / "whole"))).folder
    assert weights(whole) == weights(tmp_path / "run")


# Numbers


def _not_a_number(loss: torch.Tensor) -> torch.Tensor:
    return loss * float("nan")


def _infinite(loss: torch.Tensor) -> torch.Tensor:
    return loss + float("inf")


def _with_gradient_not_a_number(loss: torch.Tensor) -> torch.Tensor:
    loss.register_hook(lambda gradient: gradient * float("nan"))
    return loss


def _with_infinite_gradient(loss: torch.Tensor) -> torch.Tensor:
    loss.register_hook(lambda gradient: gradient * float("inf"))
    return loss


@pytest.mark.parametrize(
    ("verb", "poison"),
    [
        ("pretrain", _not_a_number),
        ("pretrain", _infinite),
        ("pretrain", _with_gradient_not_a_number),
        ("pretrain", _with_infinite_gradient),
        ("finetune", _not_a_number),
        ("finetune", _with_infinite_gradient),
    ],
)
def test_a_loss_or_gradient_that_is_not_finite_ends_the_run_with_the_step_and_the_last_good_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    poison: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    kind, steps = Objective if verb == "pretrain" else Task, 0
    original = kind.forward

    def forward(self: Any, hidden: Any, batch: PackedBatch, heads: Any) -> Any:
        nonlocal steps
        terms = original(self, hidden, batch, heads)
        if torch.is_grad_enabled():
            steps += 1
            if steps == 5:
                terms = {name: term._replace(loss=poison(term.loss)) for name, term in terms.items()}
        return terms

    monkeypatch.setattr(kind, "forward", forward)
    config = tmp_path / "config.json"
    config.write_text(json.dumps((runs if verb == "pretrain" else labelled).settings(tmp_path)))
    assert main([verb, str(config)]) == 2
    (told,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("seqbert: "))
    good = 4 if verb == "pretrain" else 3  # that of the best weights; in fine-tuning there was no validation yet
    assert re.search(rf"not finite.* in step 5.*last good checkpoint is .*step-0000000{good}.*learning_rate", told)
    checkpoints = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert checkpoints == [f"step-0000000{step}" for step in range(3, good + 1)]


# Batches


def _without_targets(batch: PackedBatch) -> PackedBatch:
    for name, target in batch.targets.items():
        symbols = None if target.symbols is None else target.symbols[:0]
        batch.targets[name] = Target(target.index[:0], target.labels[:0], symbols, target.of_sequences)
    return batch


@pytest.mark.parametrize("pair", ["none", "next_sentence"])
def test_a_step_without_any_target_changes_no_loss_to_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str
) -> None:
    original = Objective.examples

    def examples(self: Objective, source: Any, step: int, *share: Any) -> PackedBatch:
        batch = original(self, source, step, *share)
        return _without_targets(batch) if step in (0, 3) else batch

    monkeypatch.setattr(Objective, "examples", examples)
    run = seqbert.pretrain(runs.settings(tmp_path, objective={"pair": pair})).folder
    found = losses(run)
    assert found[1] == found[4] == 0 and found[5] > 0
    assert is_finite(run)


def test_a_vocabulary_without_targets_does_not_spoil_the_others_of_a_joint_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Objective.examples

    def examples(self: Objective, source: Any, step: int, *share: Any) -> PackedBatch:
        batch = original(self, source, step, *share)
        return _without_targets(batch) if source.vocabulary == "dna" and step < 4 else batch

    monkeypatch.setattr(Objective, "examples", examples)
    bases = {"data": [str(runs.write_fasta(tmp_path / "dna"))], "validation": 0.1}
    tree = runs.settings(tmp_path, domains={"dna": bases}, training={"tokens_per_step": 1024})
    run = seqbert.pretrain(tree).folder
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row.get("step") == 1 and "loss" in row)
    assert first["dna"]["masked_lm"] == 0 < first["text"]["masked_lm"]
    for name in ("text", "dna"):
        tensors = read_checkpoint(run / "model" / name).tensors.values()
        assert all(bool(tensor.isfinite().all()) for tensor in tensors)


def test_steps_in_which_no_pair_can_be_drawn_have_no_term_for_pairs(tmp_path: Path) -> None:
    texts = tmp_path / "lone"
    texts.mkdir()
    blocks = ["The cat sees a small dog.\n"] * 60 + ["The old bird sleeps.\n\nA dog hears the river.\n"] * 2
    (texts / "texts.txt").write_text("\n\n".join(f"{block}{number}" for number, block in enumerate(blocks)))
    run = seqbert.pretrain(
        runs.settings(
            tmp_path,
            domains={"text": {"data": [str(texts)], "validation": 0}},
            objective={"pair": "sentence_order"},
            training={"tokens_per_step": 64, "steps": 20},
        )
    ).folder
    assert is_finite(run) and all(loss == loss for loss in losses(run).values())


def write_tags(path: Path, records: int = 60) -> Path:
    lines = [f"{runs.WORDS[n % 20]}\tO\n{runs.WORDS[n // 20]}{n}\tB-ANIMAL\nsees\tO\n" for n in range(records)]
    path.write_text("\n".join(lines))
    return path


def write_questions(path: Path, records: int = 24) -> Path:
    """Answers at the end of long paragraphs, so that most windows hold none."""
    data = []
    for number in range(records):
        context = "the old bird sees a small tree and the river " * 6 + f"but never the grey dog{number}"
        answer = {"text": f"dog{number}", "answer_start": context.index("dog")}
        questions = [{"id": str(number), "question": "what is grey", "answers": [answer]}]
        data.append({"title": "t", "paragraphs": [{"context": context, "qas": questions}]})
    path.write_text(json.dumps({"version": "v1", "data": data}))
    return path


@pytest.mark.parametrize("task", ["classification", "regression", "tagging", "span"])
def test_fine_tuning_goes_on_over_a_step_without_any_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    original = Task.examples

    def examples(self: Any, source: Any, step: int, *share: Any) -> PackedBatch:
        batch = original(self, source, step, *share)
        return _without_targets(batch) if step in (0, 3) else batch

    monkeypatch.setattr(Task, "examples", examples)
    data: dict[str, Any] = {"validation": 0.25}
    if task == "regression":
        data["train"] = [str(labelled.write_reviews(tmp_path / "scores.csv", labels=("1.5", "3")))]
    elif task == "tagging":
        data["train"] = [str(write_tags(tmp_path / "tags.conll"))]
    elif task == "span":
        data["train"] = [str(write_questions(tmp_path / "questions.json"))]
    run = seqbert.finetune(labelled.settings(tmp_path, task={"name": task}, data=data, training={"epochs": 1})).folder
    found = losses(run)
    assert found[1] == found[4] == 0 and found[2] > 0
    assert is_finite(run)


def test_records_that_are_longer_than_any_budget_are_cut_into_what_fits(tmp_path: Path) -> None:
    texts = tmp_path / "long"
    texts.mkdir()
    (texts / "texts.txt").write_text("\n\n".join(" ".join(runs.WORDS * 40) for _ in range(12)))
    for micro_tokens in (1, 33, None):  # the first two are less than one sequence, or hardly more
        run = seqbert.pretrain(
            runs.settings(
                tmp_path,
                output=str(tmp_path / str(micro_tokens)),
                domains={"text": {"data": [str(texts)]}},
                training={"tokens_per_step": 32, "max_length": 32, "steps": 6},
                run={"micro_tokens": micro_tokens},
            )
        ).folder
        assert is_finite(run)
        assert json.loads((run / "result.json").read_text())["tokens"] <= 6 * 32


def test_a_budget_below_one_sequence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokens_per_step.*max_length"):
        seqbert.pretrain(runs.settings(tmp_path, training={"tokens_per_step": 31, "max_length": 32}))


@pytest.mark.parametrize("long", ["window", "cut"])
def test_a_labelled_record_of_many_times_the_length_trains_in_tiny_micro_batches(tmp_path: Path, long: str) -> None:
    table = labelled.write_reviews(tmp_path / "reviews.csv")
    with table.open("a", newline="") as file:
        csv.writer(file).writerow([" ".join([*runs.WORDS * 50, "good"]), "yes"])
    tree = labelled.settings(tmp_path, training={"epochs": 1}, run={"micro_tokens": 4})
    tree["data"] |= {"train": [str(table)], "long": long, "validation": 0}
    run = seqbert.finetune(tree).folder
    assert is_finite(run)


# Files and clocks


def test_row64_a_table_that_changed_since_is_refused_and_named(tmp_path: Path) -> None:
    tree = labelled.settings(tmp_path)
    run = seqbert.finetune(tree).folder
    before, table = weights(run), Path(tree["data"]["train"][0])
    rows = table.read_text().splitlines()
    for changed in (rows[:-1], [rows[0], rows[2], rows[1], *rows[3:]], [*rows[:-1], rows[-1].replace("a", "e")]):
        table.write_text("\n".join(changed) + "\n")
        with pytest.raises(ConfigError, match="is not what the run in .* was begun with"):
            seqbert.finetune(tree, resume="auto")
        assert weights(run) == before
    table.write_text("\n".join(rows) + "\n")  # the file's date is another one, and what it holds is the same
    seqbert.finetune(tree, resume="auto")
    assert weights(run) == before


def test_a_clock_that_jumps_changes_nothing_that_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = seqbert.pretrain(runs.settings(tmp_path)).folder
    real, calls = time.time, 0

    def jumping() -> float:
        nonlocal calls
        calls += 1
        return real() + (86_400, -86_400)[calls % 2]

    monkeypatch.setattr(time, "time", jumping)
    tree = runs.settings(tmp_path, output=str(tmp_path / "jumped"))
    jumped = seqbert.pretrain(tree).folder
    assert weights(plain) == weights(jumped) and losses(plain) == losses(jumped)
    for path in sorted(jumped.rglob("*")):
        os.utime(path, (real() + 10 * 86_400, real() + 10 * 86_400))
    (tmp_path / "texts" / "texts.txt").touch()
    again = seqbert.pretrain(tree, resume="auto")
    assert weights(again.folder) == weights(plain)
    assert len(losses(jumped)) == 8


GROWTH = """
import json, sys
import seqbert
from seqbert.training import logging

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def watched(original):
    def write(self, record):
        if "loss" in record:
            sizes[record["step"]] = resident()
        original(self, record)
    return write

sizes = {}
logging.MetricsLog.write = watched(logging.MetricsLog.write)
seqbert.pretrain(json.loads(sys.argv[1]))
print(json.dumps(sizes))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory from /proc")
def test_the_memory_of_a_long_run_is_flat(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GROWTH)
    tree = runs.settings(
        tmp_path,
        training={"steps": 10_000, "tokens_per_step": 64, "max_length": 16, "evaluate_every": 1000},
        run={"log_every": 100, "checkpoint_every": 500, "workers": 1},
    )
    program = start(tmp_path / "train.py", json.dumps(tree))
    said, _ = program.communicate(timeout=900)
    assert program.returncode == 0, said[-2000:]
    sizes = {int(step): size for step, size in json.loads(said.splitlines()[-1]).items()}
    begun, most = sizes[500], max(size for step, size in sizes.items() if step >= 500)
    print(f"resident after 500 steps {begun / 2**20:.1f} MiB, at most {most / 2**20:.1f} MiB afterwards")
    assert most < 1.05 * begun
