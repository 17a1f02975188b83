"""Makers of batches that fail in many ways, and a program that runs the loader's workers, for tests."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqbert.data.packing import PackedBatch, Share, pack
from seqbert.errors import DataError
from seqbert.training.loader import load_steps

LETTERS = SimpleNamespace(vocabulary="letters")
"""As a source has it."""


class Maker:
    """Makes batches of one short sequence, but for one step, in which what is named happens."""

    def __init__(self, what: str = "", at: int = -1) -> None:
        self.what, self.at = what, at

    def examples(self, source: Any, step: int, share: Share) -> PackedBatch:
        if step == self.at:
            self._fail()
        return pack("letters", [np.arange(4) + step])

    def _fail(self) -> None:
        match self.what:
            case "raise":
                error = ValueError("no such letter")
                error.add_note("record 17 of letters.txt")
                raise error
            case "refuse":
                raise DataError("The record 17 is no record.")
            case "exit":
                os._exit(3)
            case "wait":
                time.sleep(60)
            case name:
                faulthandler.disable()  # pytest's would print where
                os.kill(os.getpid(), getattr(signal, name))


def main(method: str, folder: str, then: str) -> None:
    """Begins two workers, writes down who they are, and goes on as told: waits, or ends with them at work."""
    multiprocessing.set_start_method(method)
    batches = load_steps([(Maker(), LETTERS)], range(1000), workers=2)
    next(batches)
    pids = [str(process.pid) for process in multiprocessing.active_children()]
    Path(folder, "draft").write_text(" ".join(pids))
    Path(folder, "draft").rename(Path(folder, "workers"))
    if then == "wait":
        time.sleep(60)
    elif then == "raise":
        raise SystemExit("the run failed")
    sys.last_value = batches  # type: ignore[assignment]  # as a traceback keeps it alive to the end


if __name__ == "__main__":
    main(*sys.argv[1:])
