"""Jobs of several processes: they train, evaluate, resume and end as one process does."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from labelled import settings as labelled_settings
from labelled import write_reviews
from ranks import Ended, Job, largest_difference, rows, run_alone, run_ranks, run_torchrun, torchrun
from runs import laid_over, settings, write_fasta

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are watched through /proc")

TOLERANCE = 1e-5
"""Sums over another number of processes are rounded differently."""


def write_config(folder: Path, tree: dict[str, Any]) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def pretraining(folder: Path, **changes: Any) -> Path:
    """The config of a run without dropout, but where ``changes`` bring it back."""
    return write_config(folder, settings(folder, **laid_over({"model": {"dropout": 0.0}}, changes)))


def finetuning(folder: Path, **changes: Any) -> Path:
    tree = laid_over({"model": {"dropout": 0.0}, "training": {"epochs": 1}}, changes)
    return write_config(folder, labelled_settings(folder, **tree))


def check_all_ended_well(processes: list[Ended]) -> None:
    for rank, process in enumerate(processes):
        assert process.code == 0, f"process {rank} of {len(processes)}:\n{process.err}"


def run(folder: Path, size: int, command: str, config: Path, *options: object, output: str) -> Path:
    """Carries out a command in forked processes, and gives the folder it wrote."""
    target = folder / output
    check_all_ended_well(run_ranks(folder, size, command, config, "--output", target, *options))
    return target


def same_bytes(ours: Path, theirs: Path, name: str) -> bool:
    return filecmp.cmp(ours / name, theirs / name, shallow=False)


def forget_after(run: Path, step: int) -> None:
    """Removes the checkpoints of later steps, as if the run had been killed before the first of them was written."""
    for path in (run / "checkpoints").glob("step-*"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


# Training together


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A folder, a config of 50 steps without dropout, and the run of one process."""
    folder = tmp_path_factory.mktemp("fifty")
    config = pretraining(folder, training={"steps": 50, "evaluate_every": 25})
    return folder, config, run(folder, 1, "pretrain", config, output="one")


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_give_the_losses_of_one(fifty: tuple[Path, Path, Path], size: int) -> None:
    folder, config, one = fifty
    several = run(folder, size, "pretrain", config, output=f"of {size}")
    assert [row["step"] for row in rows(several)] == [0, *range(1, 26), 25, *range(26, 51), 50]  # each once
    assert largest_difference(rows(one), rows(several)) <= TOLERANCE


def test_one_process_alone_speaks_and_writes_and_no_warning_is_seen(tmp_path: Path) -> None:
    config = pretraining(tmp_path)
    alone = run_alone(tmp_path, "pretrain", config, "--output", tmp_path / "one")
    job = run_torchrun(2, "pretrain", config, "--output", tmp_path / "two")
    assert job.code == 0, job.err
    assert job.out == alone.out.replace(str(tmp_path / "one"), str(tmp_path / "two"))
    assert "2 processes" in job.err
    assert "warn" not in job.err.lower()
    said = [line for line in re.split(r"[\r\n]+", job.err) if line]
    assert len(said) == len(set(said))
    assert [row["step"] for row in rows(tmp_path / "two")] == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8]


def test_row69_evaluation_records_that_do_not_divide_by_the_processes_count_once(tmp_path: Path) -> None:
    validation = write_reviews(tmp_path / "validation.csv", records=5, seed=1)
    config = finetuning(tmp_path, data={"validation": [str(validation)]})
    one, two = (run(tmp_path, size, "finetune", config, output=f"of {size}") for size in (1, 2))
    for part in ("metrics.json", "confusion.json"):
        assert same_bytes(one, two, f"evaluation/validation/{part}")
    assert json.loads((two / "evaluation/validation/metrics.json").read_text())["records"] == 5
    assert largest_difference(rows(one), rows(two)) <= TOLERANCE


def test_row69_processes_without_a_record_in_a_step_wait_for_nobody(tmp_path: Path) -> None:
    train = write_reviews(tmp_path / "train.csv", records=5)
    config = finetuning(
        tmp_path, data={"train": [str(train)], "validation": 0.0}, training={"batch_size": 3, "epochs": 2}
    )
    one, four = (run(tmp_path, size, "finetune", config, output=f"of {size}") for size in (1, 4))
    steps = [row for row in rows(four) if "loss" in row]
    assert [row["step"] for row in steps] == [1, 2, 3, 4]  # of 3 and 2 records, twice
    assert all(0 < row["gradient_norm"] < 100 for row in steps)
    assert largest_difference(rows(one), rows(four)) <= TOLERANCE


def write_words(path: Path) -> Path:
    """A CoNLL table, each word with a label."""
    draw = [("the", "D"), ("cat", "N"), ("sees", "V"), ("a", "D"), ("dog", "N")]
    sentences = ["\n".join(f"{word} {label}" for word, label in draw[: 2 + number % 4]) for number in range(24)]
    path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return path


SMALL = {"training": {"steps": 4}}

DEFAULTS: dict[str, dict[str, Any]] = {
    "masked_lm": SMALL,
    "next_sentence": SMALL | {"objective": {"pair": "next_sentence"}},
    "causal_lm": SMALL | {"objective": {"masked_lm": None, "causal_lm": {}}, "model": {"causal": True}},
    "tagging": {"task": {"name": "tagging"}, "data": {"train": "words"}},
    "classification with LoRA": {"training": {"lora": {"rank": 2}}},
    "features": {"features": {"layers": "weighted_sum", "lstm_hidden": 8, "lstm_layers": 1}},
    "frozen layers": {"training": {"freeze": {"embeddings": True, "layers": 1}}},
}
"""What is laid over the default settings of a small run."""

RECOMPUTED = ("masked_lm", "next_sentence", "tagging")
"""Where the two processes compute activations anew; the one that they are compared with keeps them."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_row70_every_kind_of_run_trains_on_two_processes_by_its_default_settings(name: str, tmp_path: Path) -> None:
    changes = DEFAULTS[name]
    pretrains = "steps" in changes.get("training", {})
    if changes.get("data") == {"train": "words"}:
        changes = changes | {"data": {"train": [str(write_words(tmp_path / "words.conll"))]}}
    config = (pretraining if pretrains else finetuning)(tmp_path, **changes)
    command = "pretrain" if pretrains else "finetune"
    options = ("--run.activation_checkpointing", "true") if name in RECOMPUTED else ()
    one = run(tmp_path, 1, command, config, output="of 1")
    two = run(tmp_path, 2, command, config, *options, output="of 2")
    assert largest_difference(rows(one), rows(two)) <= TOLERANCE


def joint(folder: Path, **changes: Any) -> Path:
    """A config of two domains whose steps go through the model in several pieces, not as many in every process."""
    domains = {"dna": {"data": [str(write_fasta(folder / "dna"))], "validation": 0.1, "weight": 0.4}}
    return pretraining(folder, domains=domains, run={"micro_tokens": 100}, **changes)


def test_row70_several_domains_train_on_two_and_three_processes_with_accumulation(tmp_path: Path) -> None:
    config = joint(tmp_path)
    one, two, three = (run(tmp_path, size, "pretrain", config, output=f"of {size}") for size in (1, 2, 3))
    assert largest_difference(rows(one), rows(two)) <= TOLERANCE
    assert largest_difference(rows(one), rows(three)) <= TOLERANCE


# Going on


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_a_run_goes_on_with_another_number_of_processes_and_says_so(before: int, after: int, tmp_path: Path) -> None:
    config = pretraining(tmp_path, training={"steps": 12})
    whole = run(tmp_path, 1, "pretrain", config, output="whole")
    changed = run(tmp_path, before, "pretrain", config, output="changed")
    forget_after(changed, 6)
    first, *others = run_ranks(tmp_path, after, "pretrain", config, "--output", changed, "--resume", "auto")
    check_all_ended_well([first, *others])
    assert f"It goes on with processes {after} instead of {before}" in " ".join(first.err.split())
    assert all(not one.err for one in others)
    assert largest_difference(rows(whole), rows(changed)) <= TOLERANCE


@pytest.mark.parametrize("size", [2, 3])
def test_a_run_with_dropout_goes_on_with_the_same_bytes_on_the_same_processes(size: int, tmp_path: Path) -> None:
    config = joint(tmp_path, training={"steps": 12}, model={"dropout": 0.1})
    whole = run(tmp_path, size, "pretrain", config, output="run")
    shutil.copytree(whole, tmp_path / "whole")
    forget_after(whole, 6)
    run(tmp_path, size, "pretrain", config, "--resume", "auto", output="run")
    check_same(tmp_path / "whole", whole)


def check_same(expected: Path, found: Path) -> None:
    """Makes sure that two runs wrote the same weights and the same metrics."""
    for path in sorted((expected / "model").rglob("*.safetensors")):
        assert same_bytes(expected, found, str(path.relative_to(expected)))
    last = max(path.name for path in (expected / "checkpoints").glob("step-*"))
    for name in ("model", "optimizer"):
        assert same_bytes(expected, found, f"checkpoints/{last}/{name}.safetensors")
    assert rows(expected) == rows(found)


# Other commands


@pytest.mark.slow
def test_an_evaluation_by_several_processes_has_the_bytes_of_one(tmp_path: Path) -> None:
    config = finetuning(tmp_path)
    trained = run(tmp_path, 1, "finetune", config, output="run")
    table = write_reviews(tmp_path / "more.csv", records=23, seed=5)
    for size in (1, 2, 3):
        target = tmp_path / f"scores of {size}"
        processes = run_ranks(tmp_path, size, "evaluate", trained, "--data", table, "--output", target)
        check_all_ended_well(processes)
        assert [bool(process.out) for process in processes] == [True] + [False] * (size - 1)
        for path in (tmp_path / "scores of 1").iterdir():
            assert same_bytes(tmp_path / "scores of 1", target, path.name), path.name


def test_a_corpus_prepared_by_two_processes_has_the_bytes_of_one(tmp_path: Path) -> None:
    corpora = []
    for size in (1, 2):
        folder = tmp_path / str(size)
        config = pretraining(tmp_path, run={"corpus_dir": str(folder)})
        run(tmp_path, size, "prepare", config, output=f"of {size}")
        (corpus,) = folder.glob("text-*")
        corpora.append(corpus)
    one, two = ({path.relative_to(corpus) for path in corpus.rglob("*") if path.is_file()} for corpus in corpora)
    assert one == two
    assert all(same_bytes(*corpora, str(name)) for name in one if name.suffix != ".lock")


@pytest.mark.slow
def test_torchrun_with_one_process_is_like_none(tmp_path: Path) -> None:
    config = pretraining(tmp_path, model={"dropout": 0.1})
    one = run(tmp_path, 1, "pretrain", config, output="one")
    job = run_torchrun(1, "pretrain", config, "--output", tmp_path / "job")
    assert job.code == 0, job.err
    check_same(one, tmp_path / "job")


# Endings

LONG = {"steps": 400, "evaluate_every": 1000}
"""More steps than are waited for."""


def test_a_process_that_fails_ends_the_others_and_is_the_one_that_says_why(tmp_path: Path) -> None:
    config = pretraining(tmp_path, training=LONG)
    healthy, failed = run_ranks(tmp_path, 2, "pretrain", config, ending=(1, 5))
    assert (healthy.code, failed.code) == (2, 1)
    assert "ZeroDivisionError: a fault of this process alone" in failed.err
    assert "Process 0 ends because another process of the job has" in " ".join(healthy.err.split())
    assert "Traceback" not in healthy.err


def test_a_config_that_one_process_refuses_ends_all(tmp_path: Path) -> None:
    config = pretraining(tmp_path)
    run(tmp_path, 1, "pretrain", config, output="run")
    first, second = run_ranks(tmp_path, 2, "pretrain", config)  # the folder holds a run, as process 0 alone looks
    assert first.code == second.code == 2
    assert "--overwrite" in first.err
    assert "another process of the job has" in " ".join(second.err.split())


def test_a_process_that_is_told_of_others_and_finds_none_says_so(tmp_path: Path) -> None:
    config = pretraining(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "seqbert", "pretrain", str(config)],
        env=os.environ | {"WORLD_SIZE": "2", "RANK": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert "Process 1 does not find the other processes of its job (WORLD_SIZE 2)" in ended.stderr
    assert "MASTER_ADDR expected, but not set" in ended.stderr


WRAPPER = """
import os, signal, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook
from seqbert import cli

done = 0

def die(*_):
    global done
    done += 1
    if done == 5 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

register_optimizer_step_pre_hook(die)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def dropout(tmp_path: Path) -> tuple[Path, Path]:
    """A config with dropout, and its undisturbed run on two processes."""
    config = pretraining(tmp_path, training={"steps": 12}, model={"dropout": 0.1})
    return config, run(tmp_path, 2, "pretrain", config, output="undisturbed")


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """seqbert, but process 1 is killed at step 5 unless torchrun has started it again."""
    path = tmp_path / "wrapper.py"
    path.write_text(WRAPPER, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_job(dropout: tuple[Path, Path], wrapper: Path, tmp_path: Path) -> None:
    config, _ = dropout
    job = run_torchrun(2, "pretrain", config, "--output", tmp_path / "job", script=wrapper)
    assert job.code != 0
    assert "Signal 9 (SIGKILL)" in job.err  # as torchrun names what happened
    assert [row["step"] for row in rows(tmp_path / "job")] == [0, 1, 2, 3, 4, 4]


@pytest.mark.slow
def test_a_restart_by_torchrun_goes_on_with_the_same_bytes(
    dropout: tuple[Path, Path], wrapper: Path, tmp_path: Path
) -> None:
    config, undisturbed = dropout
    restarts = ("--max-restarts", "1")
    command = ("pretrain", config, "--output", tmp_path / "job")
    job = run_torchrun(2, *command, script=wrapper, options=restarts)
    assert job.code == 0, job.err
    assert re.search("Going on after step [34],", job.err)  # that of step 4 may not have been on disk yet
    check_same(undisturbed, tmp_path / "job")


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_a_job_that_is_killed_goes_on_with_the_same_bytes(size: int, tmp_path: Path) -> None:
    config = joint(tmp_path, training={"steps": 40}, model={"dropout": 0.1})
    undisturbed = run(tmp_path, size, "pretrain", config, output="undisturbed")
    command = ("pretrain", config, "--output", tmp_path / "job")
    with torchrun(size, *command) as job:
        wait_for_step(job, tmp_path / "job", 10)
        job.kill()
    assert len(rows(tmp_path / "job")) < len(rows(undisturbed))
    ended = run_torchrun(size, *command, "--resume", "auto")
    assert ended.code == 0, ended.err
    check_same(undisturbed, tmp_path / "job")


@pytest.mark.slow
def test_sigterm_stops_all_after_the_same_step_and_nothing_is_lost(tmp_path: Path) -> None:
    config = pretraining(tmp_path, training=LONG, model={"dropout": 0.1}, run={"checkpoint_every": 1000})
    undisturbed = run(tmp_path, 2, "pretrain", config, output="undisturbed")
    command = ("pretrain", config, "--output", tmp_path / "job")
    with torchrun(2, *command) as job:
        wait_for_step(job, tmp_path / "job", 10)
        os.kill(job.process.pid, signal.SIGTERM)
        ended = job.wait()
    stopped = [int(step) for step in re.findall(r"stopped by SIGTERM after step (\d+) of 400", ended.err)]
    assert ended.code != 0
    assert len(set(stopped)) == 1 and stopped[0] >= 10, ended.err
    (checkpoint,) = (tmp_path / "job" / "checkpoints").iterdir()
    assert checkpoint.name == f"step-{stopped[0]:08d}"
    resumed = run_torchrun(2, *command, "--resume", "auto")
    assert resumed.code == 0, resumed.err
    check_same(undisturbed, tmp_path / "job")


def wait_for_step(job: Job, folder: Path, step: int) -> None:
    """Waits until a job has logged a step."""
    metrics = folder / "metrics.jsonl"
    while not (metrics.is_file() and f'"step": {step},' in metrics.read_text(encoding="utf-8")):
        assert job.process.poll() is None, job.wait().err
        time.sleep(0.02)
