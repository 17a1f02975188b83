"""Going on with a run: what must be the same as when it was begun, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from seqbert import config as config_tree
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models.model import Model
from seqbert.training import checkpoint
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


def check_same_config(folder: RunFolder, config: Any) -> None:
    """Makes sure that a run goes on with the config that it was begun with; how it is carried out may differ.

    Raises:
        ConfigError: It would not; the message says what differs.
    """
    old = config_tree.load(type(config), folder.config)
    changes = [change for change in config_tree.difference(old, config) if not change.startswith(("run.", "output:"))]
    if changes:
        raise ConfigError(
            f'The run in "{folder.path}" was begun with another config, so going on would not give what '
            f"either config describes: {'; '.join(changes)}. Use the config of the run "
            f"({folder.config}), or begin a new one with init: {folder.path}."
        )


def restore(
    folder: RunFolder,
    resume: str | None,
    model: Model,
    optimizer: torch.optim.Optimizer,
    data: Mapping[str, str],
    note: Callable[[str], None],
) -> checkpoint.Progress:
    """Puts the weights and the state of a checkpoint in place, where a run is to go on.

    Args:
        folder: The run's.
        resume: "auto": its newest intact checkpoint; a path: that one; None: none.
        model: Takes the weights.
        optimizer: Takes its state.
        data: Fingerprint of the data of each vocabulary.
        note: Is told what was done.

    Raises:
        CheckpointError: The checkpoint is missing or damaged, or of another model.
        ConfigError: The data is not what the run was begun with.
    """
    if resume is None:
        return checkpoint.Progress(data=dict(data))
    path = checkpoint.newest_checkpoint(folder.checkpoints, note) if resume == "auto" else Path(resume)
    if path is None:
        note("There is no checkpoint yet: the run starts at step 0.")
        return checkpoint.Progress(data=dict(data))
    if not path.is_dir():
        raise CheckpointError(f'There is no checkpoint at "{path}" (--resume).')
    progress = checkpoint.load_checkpoint(path, model, optimizer)
    changed = [name for name, fingerprint in data.items() if progress.data.get(name) != fingerprint]
    if changed:
        raise ConfigError(
            f'The data of {", ".join(changed)} is not what the run in "{folder.path}" was begun with, so '
            "going on would give neither run. Bring the old files back, or begin a new run with init."
        )
    note(f"Going on after step {progress.step}, from {path}.")
    return progress
