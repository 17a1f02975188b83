"""Jobs of several processes on this machine: forked ones for many short runs, and torchrun's for what it adds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import traceback
import uuid
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from seqbert.training.logging import TIMED

SECONDS = 300
"""What no job of these tests takes; one that does has hung."""

MARK = "SEQBERT_TEST_JOB"
"""Tells the processes of a job from all others, in their environment."""


SLOW_IMPORTS = (
    "seqbert.cli",
    "seqbert.training.pretrain",
    "seqbert.training.finetune",
    "seqbert.inference.predict",
    "domains.text",
    "rich.table",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.utils.tensorboard",
)
"""What would take most of the time of a run of a few steps."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process, or a job of torchrun, ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str


def run_ranks(folder: Path, size: int, *command: object, ending: tuple[int, int] | None = None) -> list[Ended]:
    """Runs a command of seqbert in so many processes of one job, and waits until all have ended.

    Args:
        folder: Where what they write goes.
        size: How many.
        command: What stands behind ``seqbert`` on a command line.
        ending: A rank and a step before whose update that rank ends by an exception of its own.
    """
    context = multiprocessing.get_context("forkserver")  # a process of one thread, which has imported what takes long
    context.set_forkserver_preload(list(SLOW_IMPORTS))
    port = free_port()
    files = [folder / f"rank{rank}" for rank in range(size)]
    arguments = [str(part) for part in command]
    processes = [
        context.Process(target=_be, args=(rank, size, port, str(files[rank]), arguments, ending))
        for rank in range(size)
    ]
    with _gone_at_the_end(processes):
        for process in processes:
            process.start()
        for process in processes:
            process.join(SECONDS)
            assert process.exitcode is not None, f"{arguments} hangs:\n{files[0].with_suffix('.err').read_text()}"
    return [
        Ended(process.exitcode or 0, file.with_suffix(".out").read_text(), file.with_suffix(".err").read_text())
        for process, file in zip(processes, files, strict=True)
    ]


def run_alone(folder: Path, *command: object) -> Ended:
    """Runs a command of seqbert in one process that is of no job."""
    (ended,) = run_ranks(folder, 1, *command)
    return ended


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of torchrun that is under way."""

    process: subprocess.Popen[str]
    mark: str

    def wait(self) -> Ended:
        """How it ended."""
        out, err = self.process.communicate(timeout=SECONDS)
        return Ended(self.process.returncode, out, err)

    def kill(self) -> None:
        """Ends all of its processes at once, as a machine does that loses its power."""
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.communicate()

    def processes(self) -> list[int]:
        """Numbers of the processes of the job that there are; torchrun puts them in sessions of their own."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


@contextlib.contextmanager
def torchrun(
    size: int, *command: object, script: Path | None = None, options: tuple[str, ...] = (), **environment: str
) -> Iterator[Job]:
    """A job of torchrun that carries out a command of seqbert; whatever happens, none of its processes is left.

    Args:
        size: How many processes.
        command: What stands behind ``seqbert`` on a command line.
        script: A Python file that runs in place of seqbert.
        options: Of torchrun.
        environment: Variables for it.
    """
    mark = uuid.uuid4().hex
    started = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), *options]
        + ["-m", "seqbert"] * (script is None)
        + ([] if script is None else [str(script)])
        + [str(part) for part in command],
        env=os.environ | {"OMP_NUM_THREADS": "1", MARK: mark} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    job = Job(started, mark)
    try:
        yield job
    finally:
        job.kill()


def run_torchrun(size: int, *command: object, **how: Any) -> Ended:
    """Runs a job of torchrun to its end."""
    with torchrun(size, *command, **how) as job:
        return job.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def rows(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, without timings."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMED} for line in lines]


def largest_difference(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> float:
    """The largest difference between the numbers of two metrics files, which must have the same steps and keys."""
    first, second = (dict(_numbers(one)) for one in (ours, theirs))
    assert first.keys() == second.keys()
    return max(abs(first[key] - second[key]) for key in first)


def _numbers(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from _numbers(value, (*path, place))
    else:
        yield path, -1.0 if tree is None else float(tree)


@contextlib.contextmanager
def _gone_at_the_end(processes: list[BaseProcess]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def _be(rank: int, size: int, port: int, file: str, command: list[str], ending: tuple[int, int] | None) -> None:
    """What a process of a job does."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in names.items()}
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{file}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    import torch

    from seqbert import cli

    torch.set_num_threads(1)
    if ending is not None and ending[0] == rank:
        end_before_update(ending[1])
    code = 1
    try:
        code = cli.main(command)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_before_update(step: int) -> None:
    """Lets this process fail before the update of a step, counted from 1, as by a fault of the program."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    done = 0

    def count(*_: object) -> None:
        nonlocal done
        done += 1
        if done == step:
            raise ZeroDivisionError("a fault of this process alone")

    register_optimizer_step_pre_hook(count)
