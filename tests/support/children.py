"""A command of seqbert in a process of its own, which waits at a chosen place of the program until it is let go.

    python children.py PLACE ANNOUNCEMENT pretrain CONFIG

PLACE names a function and one of its calls, as in ``seqbert.training.loop:Loop._step#5``; with ``>`` between two of
them the call of the second within that of the first. The file ANNOUNCEMENT is written when the program comes there,
and the program goes on when it is gone.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds after which a test fails rather than wait on."""

STEP = "seqbert.training.loop:Loop._step"
FORWARD = "seqbert.models.model:Model.forward"


def in_step(number: int) -> str:
    """The place in the middle of a step, counted from 1 over all runs of the process."""
    return f"{STEP}#{number}>{FORWARD}#1"


class Child:
    """The process, and those that it starts: a process group of their own.

    Args:
        folder: For the announcement, and for what it prints.
        place: Where it waits; None: nowhere.
        command: The arguments of seqbert.
        under: A command that starts it, such as one that takes permissions away.
    """

    def __init__(self, folder: Path, place: str | None, *command: object, under: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._announcement = folder / "announcement"
        self._output = folder / "output.txt"
        arguments = [place or "", str(self._announcement), *map(str, command)]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [*under, sys.executable, __file__, *arguments], stderr=output, stdout=output, start_new_session=True
            )
        if place is not None:
            self.wait_for(self._announcement)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.group():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text()

    def wait_for(self, path: Path) -> None:
        """Returns when a file is there."""
        deadline = time.monotonic() + PATIENCE
        while not path.exists():
            assert self.process.poll() is None, f"it ended before it came there:\n{self.output}"
            assert time.monotonic() < deadline, f"it does not come there:\n{self.output}"
            time.sleep(0.01)

    def go_on(self) -> None:
        """Lets it go on from where it waits."""
        self._announcement.unlink()

    def send(self, number: int, *more: int, group: bool = False) -> None:
        """Sends it signals one after the other; with ``group`` those that it started get them too."""
        for one in (number, *more):
            (os.killpg if group else os.kill)(self.process.pid, one)
            time.sleep(0.2 if more else 0.0)  # two at once may be taken for one

    def end(self) -> int:
        """Waits until it ends, and gives its exit code."""
        return self.process.wait(PATIENCE)

    def group(self) -> list[int]:
        """The processes of its group that still run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            except (OSError, ValueError):  # it has ended just now
                continue
            if int(group) == self.process.pid and state != "Z":
                found.append(int(path.parent.name))
        return found


def _watch(places: Sequence[str], announcement: Path) -> None:
    """Announces that the program came to the last of the places, within the call of those before."""
    where, number = places[0].split("#")
    module, name = where.split(":")
    owner: Any = importlib.import_module(module)
    *path, name = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), count(1)

    def watched(*arguments: Any, **options: Any) -> Any:
        if next(calls) == int(number):
            if places[1:]:
                _watch(places[1:], announcement)
            else:
                announcement.touch()
                while announcement.exists():
                    time.sleep(0.01)
        return original(*arguments, **options)

    setattr(owner, name, watched)


def _main() -> int:
    place, announcement, *command = sys.argv[1:]
    if place:
        _watch(place.split(">"), Path(announcement))
    from seqbert.cli import main

    return main(command)


if __name__ == "__main__":
    sys.exit(_main())
