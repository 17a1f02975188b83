"""Carries out the jobs of a study in processes of their own, skips what is done, and goes on with what was cut."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from seqbert import config as config_tree
from seqbert.data.whole import lock, write_json
from seqbert.errors import ConfigError, Stopped
from seqbert.studies.jobs import RUNS, Job
from seqbert.studies.results import result_file
from seqbert.training.logging import Console
from seqbert.training.signals import StopSignals

STUDY = "study.yaml"
"""The resolved declaration, in the study's folder."""

RECORDS, LOGS = "jobs", "logs"
"""Where a study notes what it has done, and what its jobs said."""

MOST_PROCESSES = 4
"""Jobs at a time on a CPU, unless more are asked for: memory, not cores, ends first."""


@dataclasses.dataclass(slots=True)
class Record:
    """What a study knows of a job.

    Attributes:
        settings: With what it was begun.
        finished: When it was done, in seconds since 1970; None: it was not.
        needed: When each job that it needed had been done.
        seconds: How long it took.
    """

    settings: dict[str, Any]
    finished: float | None = None
    needed: dict[str, float | None] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


class StudyFolder:
    """The folder of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Makes sure that a study may be written here.

        Raises:
            ConfigError: It holds something else.
        """
        if self.path.is_file():
            raise ConfigError(f'"{self.path}" is a file. Name another folder (--output).')
        if self.path.is_dir() and not (self.path / STUDY).is_file() and set(os.listdir(self.path)) - {".lock"}:
            raise ConfigError(
                f'The folder "{self.path}" holds files, and they are not those of a study. Name another one (--output).'
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out of it.

        Raises:
            ConfigError: Another one carries out a study there.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            free = True
            with suppress(OSError):  # no locks are known here
                free = lock(file)
            if not free:
                raise ConfigError(f'Another process carries out a study in "{self.path}": wait for it.')
            yield

    def record(self, job: Job) -> Record | None:
        """What is known of a job; None: it was never begun."""
        path = self._record_path(job)
        if not path.is_file():
            return None
        return Record(**json.loads(path.read_text(encoding="utf-8")))

    def note(self, job: Job, record: Record) -> None:
        """Notes it."""
        path = self._record_path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, dataclasses.asdict(record))

    def log(self, job: Job) -> Path:
        """What the job said."""
        path = self.path / LOGS / f"{self._name(job)}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _record_path(self, job: Job) -> Path:
        return self.path / RECORDS / f"{self._name(job)}.json"

    def _name(self, job: Job) -> str:
        return "-".join(job.folder.relative_to(self.path / RUNS).parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A job that could not be done.

    Attributes:
        job: Which.
        reason: Why.
        log: Where it says more.
    """

    job: Job
    reason: str
    log: Path

    def as_dict(self) -> dict[str, str]:
        """The same as plain data."""
        return {"job": self.job.name, "reason": self.reason, "log": str(self.log)}


def run_jobs(jobs: Sequence[Job], folder: StudyFolder, processes: int | None, overwrite: bool) -> list[Failed]:
    """Does what is not done yet, and gives what failed; jobs that need a failed one are not tried.

    Args:
        jobs: Each behind those it needs.
        folder: The study's.
        processes: How many at a time; None: one on each GPU, or without one on each core, up to four.
        overwrite: Do anew what was done with other settings.

    Raises:
        ConfigError: A job was begun with other settings, and ``overwrite`` is off.
        Stopped: At Ctrl-C or SIGTERM; the jobs at work have saved checkpoints, and the same command goes on.
    """
    with Console() as console, StopSignals():
        todo = _Todo(jobs, folder, overwrite, console)
        left = len(todo.waiting)
        console.say(f"{len(jobs)} jobs, of which {len(jobs) - left} are done")
        if not left:
            return []
        gpus = _gpus()
        count = min(processes or gpus or min(os.cpu_count() or 1, MOST_PROCESSES), left)
        workers = [_Worker(number, count, gpus) for number in range(count)]
        threads = [threading.Thread(target=todo.serve, args=(worker,), daemon=True) for worker in workers]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.05)  # where signals are heard
        except Stopped as stop:
            todo.stop()
            console.say("Stopping: the jobs at work save and end. Ctrl-C again ends them at once.")
            _wait_for(workers, threads)
            raise Stopped(stop.signal, "stopped. The same command goes on where the study was.") from None
        finally:
            for worker in workers:
                worker.end()
    return todo.failed


class _Todo:
    """What is to be done yet, shared by the threads that each speak to one worker."""

    def __init__(self, jobs: Sequence[Job], folder: StudyFolder, overwrite: bool, console: Console) -> None:
        self.folder, self.overwrite, self.console = folder, overwrite, console
        self.changed = threading.Condition()
        self.failed: list[Failed] = []
        self.stopped = False
        self.finished: dict[Path, float] = {}
        self.lost: set[Path] = set()
        self.anew: set[Path] = set()
        self.waiting: list[Job] = []
        self.active = 0
        self.total, self.begun, self.done_now = len(jobs), time.monotonic(), 0
        for job in jobs:
            self._sort_in(job)

    def _sort_in(self, job: Job) -> None:
        record = self.folder.record(job)
        if record is not None:
            other = config_tree.difference(_outcome(record.settings), _outcome(job.settings))
            if other and not self.overwrite:
                raise ConfigError(
                    f"{job.name}: this was begun with other settings ({'; '.join(other[:5])}). Do it anew with "
                    "--overwrite, or name another folder with --output."
                )
            needed = self._needed(job)
            if not other and record.finished is not None and needed == record.needed and result_file(job).is_file():
                self.finished[job.folder] = record.finished
                return
            if other or any(value is not None and needed.get(name) != value for name, value in record.needed.items()):
                self.anew.add(job.folder)
        self.waiting.append(job)

    def _needed(self, job: Job) -> dict[str, float | None]:
        """When each job that this one needs was done."""
        return {str(folder): self.finished.get(folder) for folder in job.needs}

    def serve(self, worker: _Worker) -> None:
        """Hands a worker one job after the other until none is left."""
        while (job := self._take()) is not None:
            record = Record(job.settings, None, self._needed(job))
            log = self.folder.log(job)
            begun = time.monotonic()
            try:
                self.folder.note(job, record)
                answer = worker.do(job, job.folder in self.anew, log)
            except OSError as error:  # a full disk
                answer = {"error": f"the system refused: {error.strerror or error}"}
            seconds = time.monotonic() - begun
            if "done" in answer:
                record.finished, record.seconds = time.time(), round(seconds, 1)
                try:
                    self.folder.note(job, record)
                except OSError as error:
                    answer = {"error": f"the system refused: {error.strerror or error}"}
            self._note(job, answer, record, log)

    def stop(self) -> None:
        """No more jobs are handed out."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def _take(self) -> Job | None:
        with self.changed:
            while not self.stopped:
                for job in list(self.waiting):
                    if any(folder in self.lost for folder in job.needs):
                        self.waiting.remove(job)
                        self.lost.add(job.folder)
                        reason = "a job that it needs failed"
                        self.failed.append(Failed(job, reason, self.folder.log(job)))
                    elif all(folder in self.finished for folder in job.needs):
                        self.waiting.remove(job)
                        self.active += 1
                        return job
                if not self.waiting or not self.active:
                    self.changed.notify_all()
                    return None
                self.changed.wait()
        return None

    def _note(self, job: Job, answer: dict[str, Any], record: Record, log: Path) -> None:
        with self.changed:
            self.active -= 1
            if "done" in answer:
                assert record.finished is not None
                self.finished[job.folder] = record.finished
                self.done_now += 1
                left = len(self.waiting) + self.active
                pace = (time.monotonic() - self.begun) / self.done_now
                told = f", about {_span(pace * left)} left" if left else ""
                self.console.say(f"[{self.total - left}/{self.total}] {job.name}: {_span(record.seconds)}{told}")
            elif "error" in answer:
                self.lost.add(job.folder)
                self.failed.append(Failed(job, str(answer["error"]), log))
                self.console.say(f"{job.name} failed: {answer['error']}")
            elif not self.stopped:
                self.lost.add(job.folder)
                self.failed.append(Failed(job, "its process was told to stop; the same command goes on", log))
            self.changed.notify_all()


class _Worker:
    """A process that does jobs, and the pipes to it; it is started with its first job, and again if it died."""

    def __init__(self, number: int, count: int, gpus: int) -> None:
        self.environment = dict(os.environ)
        if gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
            self.environment["CUDA_VISIBLE_DEVICES"] = visible[number % gpus]
        else:
            threads = max(1, (os.cpu_count() or 1) // count)
            self.environment.setdefault("OMP_NUM_THREADS", str(threads))
        self.process: subprocess.Popen[str] | None = None

    def do(self, job: Job, overwrite: bool, log: Path) -> dict[str, Any]:
        """Has a job done and gives the answer: done, stopped, or an error."""
        if self.process is None or self.process.poll() is not None:
            with log.open("a") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "seqbert.studies.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=self.environment,
                    start_new_session=True,  # Ctrl-C is answered here, and they are told
                )
        order = {
            "run": job.run,
            "function": job.function,
            "folder": str(job.folder),
            "seed": job.seed,
            "settings": job.settings,
            "overwrite": overwrite,
            "log": str(log),
        }
        orders, answers = _pipes(self.process)
        with suppress(OSError):  # it died: there is no answer
            orders.write(json.dumps(order) + "\n")
            orders.flush()
        line = answers.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            if "stopped" in found:
                self.process.wait()  # it ends now, and could not take another job
            return found
        code = self.process.wait()
        if code == -signal.SIGTERM:
            return {"stopped": True}
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return {"error": f"its process ended with {how}; {log} says more"}

    def ask_to_end(self) -> None:
        """Ends the pipe to it: a run at work saves and ends."""
        if self.process is not None:
            with suppress(OSError):
                _pipes(self.process)[0].close()

    def end(self) -> None:
        """Waits for its end, or makes it."""
        if self.process is None:
            return
        self.ask_to_end()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _wait_for(workers: Sequence[_Worker], threads: Sequence[threading.Thread]) -> None:
    for worker in workers:
        worker.ask_to_end()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
    except Stopped:
        for worker in workers:
            if worker.process is not None:
                worker.process.kill()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _outcome(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what comes out; how a run is carried out does not."""
    return {key: value for key, value in settings.items() if key != "run" or not isinstance(value, dict)}


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _span(seconds: float) -> str:
    """A time in words.

    >>> _span(4.2), _span(75), _span(5400)
    ('4 s', '75 s', '90 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
