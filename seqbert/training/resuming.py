"""Going on with a run: what must be the same as when it was begun, and where it stands."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch

from seqbert import config as config_tree
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models.model import Model
from seqbert.training import checkpoint
from seqbert.training.device import Device
from seqbert.training.parallel import World, restarted_job
from seqbert.training.run_folder import RunFolder


def check_places(folder: RunFolder, init: str | None, resume: str | None) -> None:
    """Makes sure that a run neither replaces what it begins from nor goes on with another run's checkpoint.

    Raises:
        ConfigError: It would.
    """
    inside = folder.path.resolve()
    if resume is None and init is not None and Path(init).resolve().is_relative_to(inside):
        raise ConfigError(
            f'The run would replace what it begins from: init ("{init}") lies in its output folder '
            f'("{folder.path}"). Name another one (--output).'
        )
    if resume not in (None, "auto") and not Path(str(resume)).resolve().is_relative_to(inside):
        raise ConfigError(
            f'The checkpoint "{resume}" (--resume) is of another run than "{folder.path}" (output). To begin '
            "a new run from the weights of another one, set init."
        )


JUDGED_BY = re.compile(
    r"(domains\.\w+\.)?objective|task|model|domain\.average|data\.(long|stride)|training\.(max_length|validation_tokens)"
)
"""How keys begin that a score depends on, beside the weights and the data, of which there are fingerprints."""


LENGTH = ("training.minutes", "training.steps", "training.epochs")
"""How keys begin that say how long a run is."""


class Walk(Protocol):
    """What sequences are drawn from, in the order of epochs."""

    def visited(self, step: int) -> int:
        """Sequences that the steps before this one took."""
        ...

    def go_on(self, step: int, visited: int) -> None:
        """Takes the order up at a step, after so many sequences."""
        ...


@dataclasses.dataclass(slots=True)
class Resuming:
    """How a run goes on.

    Attributes:
        folder: The run's.
        resume: "auto": from its newest intact checkpoint; a path: from that one; None: it begins.
        allow_changes: Whether it may go on with another batch, other data, another vocabulary or objective.
        note: Is told what was done.
        world: The processes of the job, all of which go on from what the first one finds.
        overwrite: Whether it may replace a run that the folder holds.
        is_planned_anew: Whether the number of steps of the run so far says nothing about that to come.
        is_judged_anew: Whether scores of the run so far cannot be compared with those to come.
        is_changed: Whether what was restored is not what the checkpoint holds.
        best: The checkpoint of the best step where ``model`` does not hold its weights.
    """

    folder: RunFolder
    resume: str | None
    allow_changes: bool
    note: Callable[[str], None]
    world: World
    overwrite: bool = False
    is_planned_anew: bool = False
    is_judged_anew: bool = False
    is_changed: bool = False
    best: Path | None = None

    def check(self, config: Any) -> None:
        """Makes sure that the run may be written where the config says, and goes on as it was begun.

        Raises:
            ConfigError: It may not; or the processes of the job have not one config.
        """
        self.world.same(config_tree.dump(config), "config")
        self._check_folder()
        if self.world.leads:
            check_places(self.folder, config.init, self.resume)
        self.check_config(config)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keeps the folder for this run."""
        with self.folder.lock() if self.world.leads else nullcontext():
            self._check_folder()  # again, for another run may have come and gone in the meantime
            yield

    def _check_folder(self) -> None:
        if self.world.leads:
            self.folder.check(self.overwrite, self.resume is not None)

    def check_config(self, config: Any) -> None:
        """Makes sure that the run goes on with the config that it was begun with; how it is carried out may differ.

        Raises:
            ConfigError: It would not, and may not; the message says what differs.
        """
        if self.resume is None or not self.folder.exists():
            return
        old = config_tree.load(type(config), self.folder.config)
        changes = [c for c in config_tree.difference(old, config) if not c.startswith(("run.", "output:"))]
        if changes and not self.allow_changes:
            raise ConfigError(
                f'The run in "{self.folder.path}" was begun with another config, so going on would not give what '
                f"either config describes: {'; '.join(changes)}. Use the config of the run ({self.folder.config}), "
                f"begin a new one with init: {self.folder.path}, or go on all the same (--allow-changes)."
            )
        if changes:
            self.note(f"It goes on with another config: {'; '.join(changes)}.")
        self.is_planned_anew = any(change.startswith(LENGTH) for change in changes)
        self.is_judged_anew = any(JUDGED_BY.match(change) for change in changes)

    def restore(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        walks: Mapping[str, Walk],
        data: Mapping[str, str],
        manner: Mapping[str, str],
    ) -> checkpoint.Progress:
        """Puts the weights and the state of a checkpoint in place, where the run is to go on.

        Args:
            model: Takes the weights.
            optimizer: Takes its state.
            walks: For each vocabulary what its sequences are drawn from; taken up where it stood.
            data: Fingerprint of the data of each vocabulary.
            manner: How the run is carried out.

        Raises:
            CheckpointError: The checkpoint is missing or damaged, or of another model.
            ConfigError: The data is not what the run was begun with.
        """
        begun = checkpoint.Progress(data=dict(data), manner=dict(manner))
        path = self._checkpoint()
        if path is None:
            return begun
        known = checkpoint.read_progress(path).data
        changed = [name for name, fingerprint in data.items() if known.get(name) != fingerprint]
        if changed and not self.allow_changes:
            raise ConfigError(
                f'The data of {", ".join(changed)} is not what the run in "{self.folder.path}" was begun with, so '
                "going on would give neither run. Bring the old files back, begin a new run with init, or go on all "
                "the same (--allow-changes)."
            )
        progress = checkpoint.load_checkpoint(
            path, model, optimizer, self._begins_anew if self.allow_changes else None, is_checked=True
        )
        for name, walk in walks.items():
            if name in progress.visited:
                walk.go_on(progress.step, progress.visited[name])
        self.note(f"Going on after step {progress.step:,}, from {path}.")
        if others := [name for name in changed if name in known]:
            self.note(
                f"The data of {', '.join(others)} is other than before: embeddings of a vocabulary of equal size keep "
                "their rows, whatever stands there now."
            )
        if changed or self.is_judged_anew:
            self.note("Which weights are the best is decided anew, since scores cannot be compared.")
            progress.best_score = progress.best_step = progress.evaluated = None
            self.is_changed = True
        if self.is_planned_anew:
            progress.planned = None
        self._look_for_best(progress)
        other = [
            f"{key} {now} instead of {was}"
            for key, now in manner.items()
            if (was := progress.manner.get(key, now)) != now
        ]
        if other:
            self.note(
                f"It goes on with {', '.join(other)}: the batches stay the same, sums are rounded differently, and "
                "where there is dropout other masks are drawn."
            )
        progress.data, progress.manner = begun.data, begun.manner
        return progress

    def check_length(self, progress: checkpoint.Progress, steps: int | None, minutes: float | None) -> None:
        """Makes sure that a run is not to end before where it stands.

        Raises:
            ConfigError: It is.
        """
        if minutes is not None and progress.planned is None and progress.seconds > 60 * minutes:
            raise ConfigError(
                f'The run in "{self.folder.path}" has trained for {progress.seconds / 60:.3g} minutes already, and is '
                f"to have {minutes:.3g}. Give it more (--training.minutes), or begin a new run."
            )
        if steps is not None and progress.step > steps:
            raise ConfigError(
                f'The run in "{self.folder.path}" is at step {progress.step:,} already, and is to have {steps:,}. Go '
                "on from an older checkpoint (--resume PATH), or begin a new run."
            )

    def _checkpoint(self) -> Path | None:
        """The checkpoint to go on from, intact: the one that the first process finds."""
        if self.resume is None:
            return None
        found = self.world.tell(str(self._find() or "") if self.world.leads else "")
        if not found:
            self.note("There is no checkpoint yet: the run starts at step 0.")
            return None
        self.world.sees_alike(Path(found) / "manifest.json")
        return Path(found)

    def _find(self) -> Path | None:
        if self.resume in (None, "auto"):
            return checkpoint.newest_checkpoint(self.folder.checkpoints, self.note)
        path = Path(self.resume)
        if not path.is_dir():
            raise CheckpointError(f'There is no checkpoint at "{path}" (--resume).')
        if not path.name.startswith("step-"):
            raise CheckpointError(
                f'"{path}" (--resume) is no checkpoint: those of a run are the folders RUN/checkpoints/step-…, and '
                "--resume auto takes the newest."
            )
        if (damage := checkpoint.find_damage(path)) is not None:
            raise CheckpointError(f'The checkpoint "{path}" is damaged: {damage}.')
        return path

    def _begins_anew(self, what: str) -> None:
        self.is_changed = True
        self.note(what)

    def _look_for_best(self, progress: checkpoint.Progress) -> None:
        """Sees to it that ``model`` will hold the best weights so far, though it was written by steps that are undone.

        Those of a step beyond the checkpoint may be there: the run was killed after it had found them, or goes on from
        further back. Or they were damaged, or are gone.
        """
        best, state = progress.best_step, ""
        if self.world.leads and best is not None and not self.folder.has_model_of(best):
            path = self.folder.checkpoints / f"step-{best:08d}"
            state = str(path) if path.is_dir() and checkpoint.find_damage(path) is None else "gone"
        state = self.world.tell(state)
        if state == "gone":
            self.note(f"The weights of step {best:,}, the best so far, are gone: which are the best is decided anew.")
            progress.best_score = progress.best_step = progress.evaluated = None
            self.is_changed = True
        elif state:
            self.best = Path(state)


def as_restarted(folder: RunFolder, world: World, resume: str | None, overwrite: bool) -> tuple[str | None, bool]:
    """What ``resume`` and ``overwrite`` mean to a job that torchrun has started again: it goes on with its own run."""
    job = restarted_job()
    is_own = world.leads and job is not None and folder.job == job
    return ("auto", False) if world.tell("its own" if is_own else "") else (resume, overwrite)


def manner_of(device: Device, world: World) -> dict[str, str]:
    """How a run is carried out: what a checkpoint says of it."""
    return {
        "processes": str(world.size),
        "micro_tokens": str(device.micro_tokens),
        "precision": "bf16" if device.bf16 else "fp32",
        "device": device.torch.type,
        "compile": str(device.compile).lower(),
    }
