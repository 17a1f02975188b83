"""How fast data is read, told to whoever waits while it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done; None: a line that stays."""

EVERY = 0.5
"""Seconds between two looks."""


class Passed(NamedTuple):
    """What lies behind: records read and skipped, and the share of the bytes in files that are done."""

    read: int
    skipped: int
    share: float


class Pace:
    """Tells how far it is: records, and records a second.

    Args:
        doing: What is told before the counts.
        passed: Looks how far it is.
        progress: Is told.
    """

    def __init__(self, doing: str, passed: Callable[[], Passed], progress: Progress) -> None:
        self._doing, self._passed, self._progress = doing, passed, progress
        self._begun = time.monotonic()

    def tell(self) -> None:
        """Tells how far it is now."""
        counts = self._passed()
        self._progress(self._line(counts), min(counts.share, 0.99))

    def finish(self) -> None:
        """Tells that all is done."""
        self._progress(self._line(self._passed()), 1.0)

    def _line(self, counts: Passed) -> str:
        records, seconds = counts.read + counts.skipped, time.monotonic() - self._begun
        rate = f", {records / seconds:,.0f}/s" if seconds >= EVERY else ""
        skipped = f", {counts.skipped:,} skipped" if counts.skipped else ""
        return f"{self._doing}: {records:,} records{rate}{skipped}"


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Calls ``tick`` every :data:`EVERY` seconds, in a thread of its own, while the body runs."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(EVERY):
            tick()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
