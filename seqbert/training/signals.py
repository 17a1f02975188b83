"""Ctrl-C and SIGTERM: a run finishes its step, saves, and ends with a message."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from seqbert.errors import Stopped

NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
"""The signals that are listened for, as the user knows them."""


class StopSignals:
    """Listens for SIGINT and SIGTERM as long as its block lasts.

    Where nothing would be lost a signal ends the work at once, by :class:`Stopped`. Within :meth:`held` the first one
    is noted, and the work asks :attr:`received` wherever it can stop; a second Ctrl-C ends it at once all the same. A
    second SIGTERM does not: torchrun and batch systems send it to every process, and torchrun passes it on once more.

    Outside the main thread Python delivers no signals, and nothing is listened for.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._interrupts = 0
        self._held = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in NAMES if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
            self._before = {number: signal.signal(number, self._receive) for number in heeded}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # None: one of another language, which Python cannot put back
                signal.signal(number, handler)

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Lets signals end the process by themselves, while it waits where Python's handlers cannot run."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
        try:
            yield
        finally:
            for number in self._before:
                signal.signal(number, self._receive)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Notes the first signal instead of ending the work; raises :class:`Stopped` at the end if nobody has."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.received is not None:
            raise Stopped(self.received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        self.received = self.received or number
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise Stopped(number, at_once=True)
        if first and not self._held:
            raise Stopped(number)
        if first and os.environ.get("RANK", "0") == "0":  # one of several processes says it
            message = f"\n{NAMES[number]}: finishing this step, then saving. Ctrl-C twice ends at once.\n"
            with suppress(OSError):  # the same Ctrl-C may have ended who reads this, as in `seqbert … 2>&1 | tee log`
                os.write(2, message.encode())  # not by print, whose buffer the handler may have broken into
