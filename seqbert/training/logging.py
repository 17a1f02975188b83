"""What a run tells: ``metrics.jsonl``, TensorBoard, and a progress bar or plain lines."""

from __future__ import annotations

import json
import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqbert.data.whole import write_text
from seqbert.errors import TrainingError

QUIET_SECONDS = 5.0
"""Where the output is no terminal: seconds between two lines about the same thing."""


METRICS = "metrics.jsonl"

TIMED = ("tokens_per_second", "data_wait", "seconds", "planned_steps", "graphs")
"""What of a step's line depends on the clock, or on what the process did before: repeated runs differ in it."""


class Console:
    """Speaks to the person who waits, on standard error: a live line on a terminal, plain lines elsewhere."""

    def __init__(self, speaks: bool = True) -> None:
        self._speaks = speaks and sys.stderr is not None  # of several processes one does
        self._live = self._speaks and sys.stderr.isatty()
        self._progress: Any = None
        self._task: Any = None
        self._last_line = 0.0

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def say(self, message: str) -> None:
        """A line that stays."""
        if not self._speaks:
            return
        if self._progress is not None:
            self._progress.console.print(message, highlight=False, markup=False, soft_wrap=True)
        else:
            with suppress(OSError):  # a run goes on when nobody listens any more, or what is said cannot be kept
                print(message, file=sys.stderr, flush=True)

    def preparing(self, what: str, share: float | None) -> None:
        """What is being prepared, and how much of it is done; None: a line that stays."""
        finished = share is None or share >= 1.0
        if self._live:
            self._show_preparing("" if finished else what, 0.0 if share is None else share)
        elif not finished and time.monotonic() - self._last_line < QUIET_SECONDS:
            return
        if finished or not self._live:
            self._last_line = time.monotonic()
            self.say(what if finished else f"{what} ({share:.0%})")

    def _show_preparing(self, what: str, share: float) -> None:
        """A bar that is there until ``what`` is empty."""
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TextColumn

        if not what:
            self.close()
        elif self._progress is None:
            text = TextColumn("{task.description}", markup=False)
            self._progress = Progress(BarColumn(), text, console=RichConsole(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(what, total=1.0, completed=share)
        else:
            self._progress.update(self._task, description=what, completed=share)

    def start(self, steps: int, done: int) -> None:
        """Begins to show training; ``done`` of ``steps`` lie behind."""
        if done >= steps:
            self.say(f"All {steps:,} steps are done: there is nothing left to train.")
        if not self._live:
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=RichConsole(stderr=True),
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=steps, completed=done, metrics="")

    def step(self, step: int, steps: int, record: dict[str, Any], logged: bool, seconds_left: float) -> None:
        """Shows a step of so many as are planned by now; ``record`` is that of the newest logged one."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step, total=steps, metrics=_summary(record))
        elif logged and (time.monotonic() - self._last_line >= QUIET_SECONDS or step == steps):
            self._last_line = time.monotonic()
            self.say(f"step {step}/{steps}  {_summary(record)}  {_clock(seconds_left)} left")

    def close(self) -> None:
        """Ends the live line."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _summary(record: dict[str, Any]) -> str:
    parts = [f"loss {record['loss']:.3f}"] if "loss" in record else []
    if "tokens_per_second" in record:
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class MetricsLog:
    """``metrics.jsonl`` and TensorBoard events; after a resume no step stands there twice.

    Args:
        folder: The run's.
        resumed_at: The step that the run goes on after; 0: it begins.
        evaluated: Whether that step's validation is done.
        writes: Whether this process writes at all.
    """

    def __init__(self, folder: Path, resumed_at: int, evaluated: bool = True, writes: bool = True) -> None:
        self._writes = writes
        if not writes:
            return
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        path = folder / METRICS

        def is_kept(row: dict[str, Any]) -> bool:
            return row["step"] < resumed_at or (row["step"] == resumed_at and (evaluated or not _is_validation(row)))

        kept = [json.dumps(row) for row in read_metrics(folder) if is_kept(row)] if resumed_at else []
        write_text(path, "".join(f"{line}\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_at + 1)

    def write(self, record: dict[str, Any]) -> None:
        """One line; ``record`` holds ``step``, and numbers that may be nested by vocabulary.

        Raises:
            TrainingError: It cannot be written, such as on a full disk.
        """
        if not self._writes:
            return
        try:
            self._file.write(json.dumps(_finite(record)) + "\n")
            self._file.flush()
            for name, value in _flatten(record):
                if name != "step" and isinstance(value, int | float):
                    self._board.add_scalar(name, value, record["step"])
        except OSError as error:
            raise TrainingError(
                f'The metrics of step {record["step"]} cannot be written to "{self._folder}": {error.strerror}. '
                "Make room, or mend what is wrong there; then --resume auto goes on from the newest checkpoint."
            ) from error

    def close(self) -> None:
        """Ends both files."""
        if not self._writes:
            return
        for file in (self._file, self._board):
            with suppress(OSError):  # what could not be written has been told by write
                file.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl``, but for what is none, such as the half of one that a killed run wrote."""
    path = folder / METRICS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [record for line in lines if (record := _parse(line)) is not None]


def _is_validation(row: dict[str, Any]) -> bool:
    return any(name.startswith("validation_") for name in row)


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _finite(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _flatten(record: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in record.items():
        flat += _flatten(value, f"{prefix}{key}/") if isinstance(value, dict) else [(prefix + key, value)]
    return flat
