"""A command of seqbert that dies where a plan says: what ``kill.py`` starts, again and again.

    python benchmarks/kill_child.py PLAN pretrain CONFIG --resume auto

PLAN is a JSON file:

- ``log``: a file that a line is appended to when the first step of this process is done, and where it dies;
- ``trace``: a file for all moments at which it could have died, one JSON array a line; null: none is written;
- ``die``: the moment to die at, null for none. ``{"key": […], "share": 0.4, "group": true}``: the key of a line of the
  trace; where something was just written, the share of it that is to be on disk; and whether the processes of the group
  die too, as when a scheduler ends a job;
- ``forget_optimizer``: resume without the optimizer's state, which is wrong; for a test of ``kill.py``.

seqbert has nothing for this: its functions are wrapped from outside, and what it does to files is seen by an audit hook
of the interpreter. The key of a moment says where it lies: in the run of which seed, in which step, in what (a step, a
checkpoint, an evaluation, something between), whether the last step is done, what happens, and the how-manieth time
that it happens there. An uninterrupted run and a resumed one pass the same moments, so the key of one holds for the
other.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

FILE_EVENTS = {"os.mkdir": 2, "os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.chmod": 2}
"""Events of the interpreter that change files, and where the folder that their path is relative to stands."""

READING = "step-", ".writing"
"""Parts of a path of a checkpoint that is being written; reading there is a part of writing it."""

FIRST = "first"
"""What the log says when the first step of this process is done."""


class Moments:
    """Keeps count of the moments that go by, and dies at the one that the plan names."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.process = os.getpid()
        self.folder = Path.cwd()
        self.die = plan["die"] or {"key": None}
        self.run, self.step, self.ended = 0, 0, False
        self.writing = 0
        self.scopes: dict[int, list[str]] = {}
        self.epochs: set[int] = set()
        self.edges: dict[int, list[int]] = {}
        self.counts: Counter[tuple[Any, ...]] = Counter()
        self.seen: list[list[Any]] = []

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """What goes on in this thread, for as long as it lasts."""
        scopes = self.scopes.setdefault(threading.get_ident(), [])
        scopes.append(what)
        try:
            yield
        finally:
            scopes.pop()

    def at(self, what: str, kind: str | None = None, torn: Callable[[float], None] | None = None) -> None:
        """A moment; ``torn`` leaves a share of what was just written. Workers that make batches have none."""
        if os.getpid() != self.process:
            return
        scopes = self.scopes.get(threading.get_ident())
        kind = kind or (scopes[-1] if scopes else "between")
        saving = kind == "checkpoint"
        place = (self.run, self.writing if saving else self.step, kind, self.ended and not saving, what)
        self.counts[place] += 1
        key = [*place, self.counts[place]]
        if self.plan["trace"]:
            self.seen.append([*key, torn is not None])
        if key == self.die["key"]:
            if torn is not None:
                torn(self.die["share"])
            self.log({"died": key})
            if self.die["group"]:
                os.killpg(os.getpgrp(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def log(self, line: Any) -> None:
        """Appends a line to the log, whole or not at all."""
        descriptor = os.open(self.plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.close(descriptor)

    def write_trace(self) -> None:
        """Writes the moments that went by, after a line with the last steps of the epochs of each run."""
        lines: list[Any] = [self.edges, *self.seen]
        Path(self.plan["trace"]).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def on_file(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What the interpreter is about to do to a file of the run; an audit hook."""
        if event == "open":
            path, mode, flags = arguments
            if not isinstance(path, str | os.PathLike) or path == self.plan["log"]:
                return
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) or any(letter in (mode or "") for letter in "wax+")
            self._on_path("open" if writes else "read", Path(path), writes)
        elif event in FILE_EVENTS:
            folder = arguments[FILE_EVENTS[event]] if len(arguments) > FILE_EVENTS[event] else -1
            path = Path(os.fsdecode(arguments[0]))
            self._on_path(event.partition(".")[2], _of_descriptor(folder) / path if folder >= 0 else path, True)

    def _on_path(self, what: str, path: Path, writes: bool) -> None:
        path = self.folder / path
        if not path.is_relative_to(self.folder / "run") or "tensorboard" in path.parts or path.name == ".lock":
            return
        saves = "checkpoints" in path.parts
        if saves and what == "mkdir" and (step := re.search(r"step-(\d+)", path.name)):
            self.writing = int(step[1])
        if writes or (saves and all(part in str(path) for part in READING)):
            name = re.sub(r"\d{8}", "N", path.name)
            self.at(f"{what} {name}", "checkpoint" if saves else None)

    def written(self, path: Path, before: int = 0) -> None:
        """Something was written to the end of a file that had ``before`` bytes."""
        path = self.folder / path
        if path.is_relative_to(self.folder / "run"):

            def torn(share: float) -> None:
                os.truncate(path, before + int(share * (path.stat().st_size - before)))

            self.at(f"half {path.name}", "checkpoint" if "checkpoints" in path.parts else None, torn)


def _of_descriptor(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Puts ``around(function, *arguments)`` in a function's place, wherever a module of seqbert has its name too."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return around(function, *arguments, **options)

    setattr(owner, name, wrapped)
    if isinstance(owner, ModuleType):
        for module in [module for key, module in sys.modules.items() if key.startswith("seqbert.")]:
            if getattr(module, name, None) is function:
                setattr(module, name, wrapped)


def install(moments: Moments) -> None:
    """Wraps what trains, evaluates and writes."""
    import safetensors.torch
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from seqbert.models.model import Model
    from seqbert.training import checkpoint, evaluation, evaluation_folder, finetune, loader, logging, loop, pretrain

    assert finetune and pretrain  # they are imported, so that what they have imported is wrapped there too

    def run(function: Any, self: Any, *arguments: Any) -> Any:
        moments.run, moments.step, moments.ended = self.settings.seed, self.progress.step, False
        moments.edges[moments.run] = sorted(moments.epochs)
        result = function(self, *arguments)
        moments.ended = True
        first_step_done()
        moments.at("trained")
        return result

    @functools.cache
    def first_step_done() -> None:
        moments.log(FIRST)

    def step(function: Any, self: Any, number: int, *arguments: Any) -> Any:
        moments.step = number + 1
        with moments.doing("step"):
            moments.at("step")
            result = function(self, number, *arguments)
            moments.at("step done")
        first_step_done()
        return result

    def load_steps(function: Any, parts: Any, steps: range, *arguments: Any, **options: Any) -> Any:
        moments.epochs = {step for _, source in parts for step in ends_of_epochs(source, steps)}
        return function(parts, steps, *arguments, **options)

    def evaluated(function: Any, *arguments: Any, **options: Any) -> Any:
        with moments.doing("evaluation"):
            moments.at(function.__name__)
            result = function(*arguments, **options)
            moments.at(f"{function.__name__} done")
        return result

    def between(before: str, after: str) -> Callable[..., Any]:
        def around(function: Any, *arguments: Any, **options: Any) -> Any:
            moments.at(before)
            result = function(*arguments, **options)
            moments.at(after)
            return result

        return around

    def writes_file(function: Any, *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        path = next(value for value in arguments if isinstance(value, Path))
        moments.written(path)
        return result

    def writes_metrics(function: Any, self: Any, *arguments: Any) -> Any:
        path = Path(self._file.name)
        before = path.stat().st_size
        function(self, *arguments)
        moments.written(path, before)

    def flush(function: Any, descriptor: int) -> Any:
        path = _of_descriptor(descriptor)
        moments._on_path("fsync", path, True)
        return function(descriptor)

    wrap(loop.Loop, "run", run)
    wrap(loop.Loop, "_step", step)
    wrap(loop.Loop, "_evaluate", evaluated)
    wrap(loader, "load_steps", load_steps)
    for module, name in (
        (evaluation, "evaluate"),
        (evaluation, "task_outputs"),
        (evaluation_folder, "write_evaluation"),
    ):
        wrap(module, name, evaluated)
    wrap(Model, "forward", between("forward", "hidden states"))
    wrap(torch.Tensor, "backward", between("loss", "gradients"))
    register_optimizer_step_pre_hook(lambda *_: moments.at("update"))
    register_optimizer_step_post_hook(lambda *_: moments.at("updated"))
    wrap(safetensors.torch, "save_file", writes_file)
    for name in ("write_text", "write_bytes"):
        wrap(Path, name, writes_file)
    wrap(logging.MetricsLog, "write", writes_metrics)
    wrap(os, "fsync", flush)
    sys.addaudithook(moments.on_file)
    if moments.plan["forget_optimizer"]:
        wrap(checkpoint, "_restore_optimizer", lambda function, *arguments: None)


def ends_of_epochs(source: Any, steps: range) -> set[int]:
    """The steps with which the epochs of a source end, counted from 1."""
    if hasattr(source, "plan"):
        a_step, an_epoch = source.stages[0].sequences, source.plan.total
    else:
        a_step, an_epoch = 1, source.batcher.steps_per_epoch
    return {step for step in range(1, steps.stop + 1) if step * a_step // an_epoch > (step - 1) * a_step // an_epoch}


def main() -> int:
    """Runs the command that follows the plan."""
    from seqbert import cli

    plan, *command = sys.argv[1:]
    moments = Moments(json.loads(Path(plan).read_text(encoding="utf-8")))
    install(moments)
    code = cli.main(command)
    if moments.plan["trace"]:
        moments.write_trace()
    return code


if __name__ == "__main__":
    sys.exit(main())
