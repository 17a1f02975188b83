"""Processes that are measured in turns: each has one of its own, and works when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, TextIO


class ContenderError(Exception):
    """A process that measures ended early; it has said why."""


class Contender:
    """A process that runs the same benchmark with ``--contender``, and answers each line that it is told with one.

    Args:
        script: The benchmark's file.
        name: Which contender it is to be.
        more: What else ``--contender`` takes.
    """

    def __init__(self, script: str, name: str, *more: str) -> None:
        self.name = name
        command = [sys.executable, script, *sys.argv[1:], "--contender", name, *more]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line: str = "") -> None:
        """Tells it what to do; :meth:`answer` finds out where it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def answer(self) -> Any:
        """What it answers, once it does.

        Raises:
            ContenderError: It has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(f"{self.name} ended with code {self._process.wait()}.")
        return json.loads(line)

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def answers() -> TextIO:
    """In a contender's process, where its answers go, a line of JSON each; what libraries print is no answer."""
    file = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return file
