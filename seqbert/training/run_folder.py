"""A run's folder: what lies where, and who may write there."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import yaml

from seqbert.data.whole import LEFT_OVER, checksum, lock, restore_place, write_json, write_text
from seqbert.errors import CheckpointError, ConfigError

CONFIG = "config.yaml"

MODEL_STEP = "training.json"
"""Beside the weights in ``model``: which step they are of, and checksums."""

JOB = ".job"
"""Which job of torchrun began the run."""

PREPARED = {"data.json", "tokenizers", ".lock", JOB}
"""What stands in a folder in which a run was prepared, or begun and given up before it trained."""


_locks: WeakSet[IO[str]] = WeakSet()
"""What this process holds. A worker is forked with copies, and would hold a lock on where this one was killed."""


def _drop_locks() -> None:
    for file in _locks:
        file.close()


if hasattr(os, "register_at_fork"):  # a Unix
    os.register_at_fork(after_in_child=_drop_locks)


@dataclasses.dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / CONFIG

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

    def tokenizer(self, domain: str) -> Path:
        """The tokenizer of a domain."""
        return self.path / "tokenizers" / domain / "tokenizer.json"

    def model(self, domain: str, domains: int) -> Path:
        """The Hugging Face folder of a domain's model: ``model``, or ``model/DOMAIN`` where there are several."""
        return self.path / "model" if domains == 1 else self.path / "model" / domain

    @property
    def task(self) -> Path:
        """What a fine-tuned run knows of its task: labels, thresholds."""
        return self.path / "task.json"

    @property
    def vocabulary_map(self) -> Path:
        """Which word of init each token was given, where ``domain.vocabulary`` is map."""
        return self.path / "vocabulary_map.json"

    @property
    def evaluation(self) -> Path:
        """Metrics, predictions and pictures."""
        return self.path / "evaluation"

    def has_model_of(self, step: int) -> bool:
        """Whether ``model`` holds the weights of a step, undamaged; of what does not say so, that it holds any."""
        model = self.path / "model"
        if model.is_dir() and not (model / MODEL_STEP).is_file():
            return True  # written before this was noted
        try:
            noted = json.loads((model / MODEL_STEP).read_text(encoding="utf-8"))
            sums = {model / name: digest for name, digest in noted["sha256"].items()}
            return noted["step"] == step and all(checksum(path) == digest for path, digest in sums.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def exists(self) -> bool:
        """Whether it holds a run."""
        return self.config.is_file()

    def check(self, overwrite: bool, resume: bool) -> None:
        """Makes sure that a run may be written here; nothing is changed yet.

        Raises:
            ConfigError: if it already holds a run and is neither resumed nor overwritten, holds other files, or
                cannot be written to.
        """
        if self.exists():
            if not overwrite and not resume:
                raise ConfigError(
                    f'The folder "{self.path}" already holds a run. Go on with it (--resume auto), replace it '
                    "(--overwrite), or name another one (--output)."
                )
        elif self.path.is_dir() and any(not _is_ours(path.name) for path in self.path.iterdir()):
            raise ConfigError(
                f'The folder "{self.path}" holds files, and they are not those of a run. Name another one (--output).'
            )
        nearest = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise ConfigError(
                f'The folder "{self.path}" cannot be made or written to: "{nearest}" is '
                f"{'read-only' if nearest.is_dir() else 'a file'}. Name another one (--output)."
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other runs out of the folder; a folder that nothing was written to is taken away again.

        Raises:
            ConfigError: if another process holds it.
        """
        with self._open_lock():
            try:
                yield
            finally:
                if self.path.is_dir() and {path.name for path in self.path.iterdir()} == {".lock"}:
                    (self.path / ".lock").unlink()
                    self.path.rmdir()

    def _open_lock(self) -> IO[str]:
        self.path.mkdir(parents=True, exist_ok=True)
        file = (self.path / ".lock").open("w")
        _locks.add(file)
        with suppress(OSError):  # no locks are known here
            if not lock(file):
                file.close()
                raise ConfigError(
                    f'Another process is writing a run to the folder "{self.path}". Wait for it, or name another '
                    "folder (--output)."
                )
        return file

    @property
    def job(self) -> str | None:
        """The job that began the run or took it up last; None where that is not known."""
        path = self.path / JOB
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def begin(self, resume: bool, job: str | None = None) -> None:
        """Makes the folder, and takes away what an earlier run left, unless it is resumed; notes the job."""
        self.path.mkdir(parents=True, exist_ok=True)
        if resume:
            restore_place(self.path / "model")
        else:
            self._clear()
        for path in self.path.glob(".*"):
            if LEFT_OVER.fullmatch(path.name):
                _remove(path)
        if job is not None:
            write_text(self.path / JOB, job)

    def _clear(self) -> None:
        """Removes what a run writes, and nothing else that may lie there."""
        for name in ("checkpoints", "tokenizers", "model", "evaluation", "seeds", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        files = ("data.json", "metrics.jsonl", "result.json", "task.json", "import.json", "report.html", JOB)
        for path in (self.vocabulary_map, *(self.path / name for name in files)):
            path.unlink(missing_ok=True)
        self.config.unlink(missing_ok=True)  # last, so that until then it is the folder of a run


def _is_ours(name: str) -> bool:
    return name in PREPARED or LEFT_OVER.fullmatch(name) is not None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def note_step(model: Path, step: int | None) -> None:
    """Notes beside the weights in ``model`` which step they are of, and the checksums of all that is there."""
    files = sorted(path for path in model.rglob("*") if path.is_file())
    sums = {path.relative_to(model).as_posix(): checksum(path) for path in files}
    write_json(model / MODEL_STEP, {"step": step, "sha256": sums})


@dataclasses.dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model of a run as the other commands need it.

    Attributes:
        folder: Its Hugging Face folder.
        domain: Name of the domain whose sequences it reads.
        options: The domain's options, as the config has them.
    """

    folder: Path
    domain: str
    options: Mapping[str, Any] | None


def domains_of(path: str | Path) -> dict[str, Mapping[str, Any] | None]:
    """The domains of a run and the options of each; none for an imported checkpoint.

    Raises:
        CheckpointError: if there is no run at ``path``.
    """
    run = RunFolder(Path(path))
    if not run.exists():
        hint = ""
        if (run.path / "config.json").is_file():
            hint = " It is a Hugging Face folder: `seqbert import` makes a run of it, and pretrain takes it as init."
        raise CheckpointError(f'There is no run in "{path}": it has no {CONFIG}.{hint}')
    try:
        tree = yaml.safe_load(run.config.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a byte that is no text
        problem = " ".join(str(error).split())
        raise CheckpointError(f'"{run.config}" is not the config of a run: it cannot be read ({problem}).') from error
    try:
        if "task" in tree:
            return {tree["domain"]["name"]: tree["domain"]["options"]}
        return {name: section["options"] for name, section in tree["domains"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f'"{run.config}" is not the config of a run: it has no domains.') from error


def open_run(path: str | Path, domain: str | None = None) -> TrainedModel:
    """Finds the model of a run, or of one of its domains where it has several.

    Raises:
        CheckpointError: if there is no run, it has no model yet, or it is unclear which domain is meant.
    """
    domains = domains_of(path)
    if domain is None and len(domains) != 1:
        which = f"holds several domains: {', '.join(domains)}" if domains else "was imported without a domain"
        raise CheckpointError(f'The run "{path}" {which}. Say which one is meant with --domain NAME.')
    name = domain if domain is not None else next(iter(domains))
    if domains and name not in domains:
        raise CheckpointError(f'The run "{path}" has no domain "{name}"; it has {", ".join(domains)}.')
    folder = RunFolder(Path(path)).model(name, max(1, len(domains)))
    if not (folder / "config.json").is_file():
        raise CheckpointError(f'The run "{path}" has no model yet: training has not come to an evaluation.')
    return TrainedModel(folder, name, domains.get(name))
