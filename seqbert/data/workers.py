"""Work that is spread over processes which live no longer than the one that started them."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

from seqbert.data.pace import EVERY, ticking
from seqbert.errors import DataError

Task = TypeVar("Task")

SIGNALS = {signal.SIGINT, signal.SIGTERM}
"""What Ctrl-C, torchrun and Slurm send to every process of a job: only the main process answers."""


class WorkerDied(Exception):
    """A process that ended while it was at work.

    Attributes:
        task: What it was working at.
        exit_code: As ``multiprocessing`` gives it: below 0 the number of the signal that ended it.
    """

    def __init__(self, task: Any, exit_code: int) -> None:
        super().__init__(task, exit_code)
        self.task = task
        self.exit_code = exit_code

    @property
    def cause(self) -> str:
        """How it ended, in words."""
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        try:
            return f"was ended by {signal.Signals(-self.exit_code).name}"
        except ValueError:  # a real-time signal
            return f"was ended by signal {-self.exit_code}"


class WorkerTraceback(Exception):
    """Where in a worker an error arose, as text; the cause of the error that is raised again here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def spread(
    job: Callable[[Task], None], tasks: Sequence[Task], processes: int, tick: Callable[[], None] = lambda: None
) -> Iterator[Task]:
    """Carries out ``job`` for each task, and yields each task when it is done; in this process if one is enough.

    Meanwhile ``tick`` is called twice a second. The start method is multiprocessing's; with "spawn" and "forkserver",
    ``job`` and the tasks are pickled. However the iteration ends, no worker is left.

    Raises:
        DataError: if a process cannot be started.
        WorkerDied: if a process ends before its task is done.
        Exception: what ``job`` raised.
    """
    if min(processes, len(tasks)) <= 1:
        for task in tasks:
            with ticking(tick):
                job(task)
            yield task
        return
    waiting = iter(tasks)
    workers: dict[connection.Connection, _Worker[Task]] = {}
    try:
        for task in islice(waiting, processes):
            with signals_held_back():  # until it is known here, so that a signal leaves none
                worker = _start(job)
                workers[worker.connection] = worker
            worker.give(task)
        while workers:
            if not (all_ready := connection.wait(list(workers), EVERY)):
                tick()
            for ready in all_ready:
                worker = workers[ready]  # type: ignore[index]  # one of those that were given
                done = worker.finish()
                for task in islice(waiting, 1):
                    worker.give(task)
                if worker.task is None:
                    worker.end()
                    del workers[worker.connection]
                yield done
    finally:
        for worker in workers.values():
            worker.end()


@dataclasses.dataclass(slots=True)
class _Worker(Generic[Task]):
    """A process at work, and the near end of the pipe to it."""

    process: multiprocessing.Process
    connection: connection.Connection
    task: Task | None = None

    def give(self, task: Task) -> None:
        self.task = task
        try:
            self.connection.send(task)
        except OSError as error:
            raise self._died() from error

    def finish(self) -> Task:
        """The task, now that it is done; or raises what came in its stead."""
        try:
            failure: tuple[Exception, str] | None = self.connection.recv()
        except (EOFError, OSError) as ended:
            raise self._died() from ended
        if failure is not None:
            raised, text = failure
            raise raised from WorkerTraceback(text)
        done, self.task = self.task, None
        assert done is not None
        return done

    def end(self) -> None:
        self.process.kill()  # SIGTERM would be ignored
        self.process.join()
        self.connection.close()

    def _died(self) -> WorkerDied:
        self.process.join(timeout=10)
        exit_code = self.process.exitcode
        return WorkerDied(self.task, 0 if exit_code is None else exit_code)


def _start(job: Callable[[Task], None]) -> _Worker[Task]:
    try:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=_work, args=(job, theirs))
        process.start()
    except OSError as error:
        raise DataError(
            f"No process can be started to read the data: {error.strerror or error}. Try run.workers 1."
        ) from error
    theirs.close()  # so that reading from ours ends when the worker does
    return _Worker(process, ours)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Keeps a new process, which inherits this, from being hit before it has learned to ignore the signals."""
    if not hasattr(signal, "pthread_sigmask"):  # not a Unix
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(job: Callable[[Task], None], tasks: connection.Connection) -> None:
    begin_worker()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
    while True:
        try:
            task = tasks.recv()
        except EOFError:
            return
        try:
            job(task)
        except Exception as error:
            tasks.send((_portable(error), traceback.format_exc()))
        else:
            tasks.send(None)


def begin_worker() -> None:
    """Has a new process ignore the signals that the main process answers, and end with it, even by SIGKILL."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when the one that started it has ended, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error if it can be sent to another process, else one that says the same."""
    try:
        ForkingPickler.dumps(error)
        copy.copy(error)  # it is made anew there in the same way
        return error
    except Exception:  # whatever a class of errors does when it is pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
