"""Checkpoints: written whole or not at all, never pickled.

A checkpoint is a folder ``step-00001000`` with ``model.safetensors``, ``optimizer.safetensors``, ``state.json`` and a
``manifest.json`` of checksums. It is written beside its place, flushed to disk, and renamed; so a folder of that name
is complete, and its manifest shows whether it still is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqbert.errors import CheckpointError
from seqbert.models.weights import save_tensors

LAYOUT = 1
"""Version of a checkpoint's layout; another one is refused, never misread."""

_NAME = re.compile(r"step-(\d{8})")


@dataclasses.dataclass(slots=True)
class Progress:
    """What a run knows beside its weights; data needs no state, for a batch is a function of seed and step.

    Attributes:
        step: Steps done.
        tokens: Tokens trained on.
        best_score: Lowest validation score so far, or None.
        best_step: The step it was reached at.
        first: Validation metrics before the first step, by vocabulary.
        data: Fingerprint of each vocabulary's corpus and tokenizer.
    """

    step: int = 0
    tokens: int = 0
    best_score: float | None = None
    best_step: int | None = None
    first: dict[str, dict[str, float | None]] = dataclasses.field(default_factory=dict)
    data: dict[str, str] = dataclasses.field(default_factory=dict)


def save_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, keep: int
) -> Path:
    """Writes the checkpoint of ``progress.step`` under ``folder`` and removes all but the newest ``keep``.

    Raises:
        CheckpointError: if it cannot be written, such as on a full disk; what was there before stays.
    """
    target = folder / f"step-{progress.step:08d}"
    draft = folder / f".{target.name}.writing"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_tensors(model.state_dict(), draft / "model.safetensors")
        save_tensors(_optimizer_tensors(model, optimizer), draft / "optimizer.safetensors")
        (draft / "state.json").write_text(json.dumps(dataclasses.asdict(progress), indent=2) + "\n")
        files = {path.name: _checksum(path) for path in sorted(draft.iterdir())}
        manifest = {"layout": LAYOUT, "step": progress.step, "sha256": files}
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        for path in draft.iterdir():
            _flush(path)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        _flush(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(
            f'The checkpoint of step {progress.step} cannot be written to "{folder}": {error.strerror}. '
            "Checkpoints written before are intact."
        ) from error
    others = [step for step in _complete(folder) if step != progress.step]
    abandoned = [step for step in others if step > progress.step]  # of a run that was taken up again further back
    older = sorted(set(others) - set(abandoned))
    for step in abandoned + older[: len(older) - (keep - 1)]:
        shutil.rmtree(folder / f"step-{step:08d}", ignore_errors=True)
    return target


def newest_checkpoint(folder: Path, warn: Any = lambda message: None) -> Path | None:
    """The newest checkpoint under ``folder`` that is intact, or None; ``warn`` is told of damaged ones."""
    for step in sorted(_complete(folder), reverse=True):
        path = folder / f"step-{step:08d}"
        damage = find_damage(path)
        if damage is None:
            return path
        warn(f'The checkpoint "{path}" is damaged ({damage}) and is passed over.')
    return None


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None.

    Raises:
        CheckpointError: if it is of another layout.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        layout, sums = manifest["layout"], dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return "its manifest.json is missing or cannot be read"
    if layout != LAYOUT:
        raise CheckpointError(
            f'The checkpoint "{path}" has layout {layout}, and this version of seqbert reads layout {LAYOUT}.'
        )
    for name, checksum in sums.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if _checksum(file) != checksum:
            return f"{name} does not match its checksum"
    return None


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Puts a checkpoint's weights and optimizer state in place and returns how far it was.

    Raises:
        CheckpointError: if the checkpoint is damaged, or is of another model.
    """
    from safetensors.torch import load_file

    if (damage := find_damage(path)) is not None:
        raise CheckpointError(f'The checkpoint "{path}" is damaged: {damage}.')
    weights = load_file(path / "model.safetensors")
    own = model.state_dict()
    if {name: tensor.shape for name, tensor in weights.items()} != {n: t.shape for n, t in own.items()}:
        raise CheckpointError(f'The checkpoint "{path}" is of another model than the config describes.')
    model.load_state_dict(weights)
    _restore_optimizer(model, optimizer, load_file(path / "optimizer.safetensors"))
    return Progress(**json.loads((path / "state.json").read_text()))


def _complete(folder: Path) -> list[int]:
    names = folder.iterdir() if folder.is_dir() else ()
    return [int(match[1]) for path in names if (match := _NAME.fullmatch(path.name))]


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under ``key.parameter``: ``exp_avg.encoder.blocks.0.…``."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key}.{names[parameter]}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        key, name = full_name.split(".", 1)
        parameter = parameters[name]
        device = parameter.device if tensor.ndim else tensor.device
        if key == "step" and optimizer.defaults.get("fused"):
            device = parameter.device  # the fused kernels read the count where the weights are
        optimizer.state[parameter][key] = tensor.to(device)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
