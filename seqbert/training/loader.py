"""Prepares the batches of coming steps in the background.

Worker processes of our own rather than a ``DataLoader``'s, for batches that go through pipes: nothing is put into
shared memory, of which a container has 64 MB by default, and nobody is told in the middle of an update that a worker
died.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import multiprocessing
import sys
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn, Protocol

import torch

from seqbert.data.allocator import keep_freed_memory
from seqbert.data.packing import WHOLE, PackedBatch, Share
from seqbert.data.workers import WorkerDied, WorkerTraceback, begin_worker, signals_held_back
from seqbert.errors import SeqbertError, TrainingError

ENDLESS = sys.maxsize
"""The end of a range of steps whose number is not known: they are made until the iterator is closed or collected."""

ENDING_SECONDS = 10.0
"""How long a worker that closed its pipe is waited for, so that it can be said what ended it."""


class Batches(Protocol):
    """Makes the batches of one vocabulary: an objective or a task."""

    def examples(self, source: Any, step: int, share: Share) -> PackedBatch:
        """A process' share of the global batch of a step, from what the source holds."""
        ...


class StepBatches:
    """What one process trains on in each step: a batch for each vocabulary, always in the same order."""

    def __init__(self, parts: Sequence[tuple[Batches, Any]], share: Share = WHOLE) -> None:
        self._parts = parts
        self._share = share

    def __getitem__(self, step: int) -> list[PackedBatch]:
        made = []
        for maker, source in self._parts:
            try:
                made.append(maker.examples(source, step, self._share))
            except SeqbertError:
                raise
            except Exception as error:  # of a plugin, of a file that changed, or of ours
                raise TrainingError(
                    f"The batch of step {step + 1} ({source.vocabulary}) could not be made: {_in_words(error)}. If a "
                    "file of the corpus was changed or removed during the run, bring it back and go on with --resume "
                    "auto; --debug shows where in the code it happened."
                ) from error
        return made


def load_steps(
    parts: Sequence[tuple[Batches, Any]], steps: range, workers: int, share: Share = WHOLE
) -> Iterator[list[PackedBatch]]:
    """The batches of the steps, in order; the same ones for any number of workers.

    The workers begin at once. They end when the steps do, when the iterator is closed or collected, and when this
    process ends, in whatever way.

    Args:
        parts: What makes the batches of each vocabulary, and what it makes them from.
        steps: The steps.
        workers: Processes that make them; 0: this one, step by step.
        share: The part of each global batch that this process trains on.

    Raises:
        TrainingError: A batch cannot be made, or a worker was ended from outside; the step is named.
        SeqbertError: What the maker of a batch raises is raised here, whichever process it was in.
    """
    batches = StepBatches(parts, share)
    if workers == 0 or not steps:
        return (batches[step] for step in steps)
    return _Crew(batches, steps, min(workers, len(steps)))


class _Crew:
    """Workers that take the steps in turn. A pipe that is full holds its worker back until this process reads."""

    def __init__(self, batches: StepBatches, steps: range, size: int) -> None:
        self._steps = iter(steps)
        self._turn = 0
        self._pipes: list[Connection] = []
        self._workers: list[BaseProcess] = []
        self._end = functools.partial(_end, self._workers, self._pipes)
        atexit.register(self._end)  # runs before multiprocessing waits for its processes, as it does at exit
        try:
            for number in range(size):
                self._start(batches, steps[number::size])
        except BaseException:
            self.close()
            raise

    def _start(self, batches: StepBatches, steps: range) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        self._pipes.append(ours)
        worker = multiprocessing.Process(target=_work, args=(batches, steps, theirs), daemon=True)
        with theirs, signals_held_back():  # once our copy is closed, the pipe ends with the worker
            worker.start()
            self._workers.append(worker)  # before a signal may end the work

    def __iter__(self) -> _Crew:
        return self

    def __next__(self) -> list[PackedBatch]:
        try:
            step = next(self._steps)
        except StopIteration:
            self.close()
            raise
        number, self._turn = self._turn, (self._turn + 1) % len(self._workers)
        try:
            made = self._pipes[number].recv()
        except (EOFError, OSError):
            self._report_death(step, self._workers[number])
        if isinstance(made, _Failure):
            self.close()
            raise made.kind(made.message) from WorkerTraceback(made.traceback)
        return made  # type: ignore[no-any-return]

    def _report_death(self, step: int, worker: BaseProcess) -> NoReturn:
        worker.join(ENDING_SECONDS)
        died = WorkerDied(step, worker.exitcode or 0)
        self.close()
        causes = {
            "SIGKILL": "The system does so where memory runs out: lower run.workers, or set it to 0, or give the run "
            "more memory.",
            "SIGBUS": "That is a file of the corpus which was cut off or removed while it was read: bring it back, or "
            "prepare the corpus anew.",
        }
        mend = causes.get(died.cause.split()[-1], "Try run.workers 0, which makes the batches in the main process.")
        raise TrainingError(
            f"The worker process that makes the batch of step {step + 1} {died.cause}, so the run stops here. {mend} "
            "It goes on from its newest checkpoint with --resume auto."
        )

    def close(self) -> None:
        """Ends the workers."""
        atexit.unregister(self._end)
        self._end()

    def __del__(self) -> None:
        self.close()


def _end(workers: Sequence[BaseProcess], pipes: Sequence[Connection]) -> None:
    for worker in workers:
        worker.kill()  # they heed no gentler signal
    for worker in workers:
        worker.join()
    for pipe in pipes:
        pipe.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Failure:
    """What a worker sends in place of a batch that it could not make."""

    kind: type[SeqbertError]
    message: str
    traceback: str


def _work(batches: StepBatches, steps: range, pipe: Connection) -> None:
    begin_worker()
    keep_freed_memory()
    torch.set_num_threads(1)
    for step in steps:
        made: list[PackedBatch] | _Failure
        try:
            made = batches[step]
        except SeqbertError as error:
            kind = next(base for base in type(error).__mro__ if base.__module__ == SeqbertError.__module__)
            made = _Failure(kind, str(error), "".join(traceback.format_exception(error)))
        pipe.send(made)


def _in_words(error: BaseException) -> str:
    """An exception, with what was noted on it on its way, as part of a sentence."""
    parts = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return "; ".join(" ".join(part.split()).rstrip(".:") for part in parts)
