"""Checkpoints: written whole or not at all, never pickled.

A checkpoint is a folder ``step-00001000`` with ``model.safetensors``, ``optimizer.safetensors``, ``state.json`` and a
``manifest.json`` of checksums. It is written beside its place while training goes on, flushed to disk, and renamed; so
a folder of that name is complete, and its manifest shows whether it still is.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqbert.data.whole import checksum, draft_of, put_in_place, restore_place
from seqbert.errors import CheckpointError
from seqbert.models.weights import save_tensors

LAYOUT = 2
"""Version of a checkpoint's layout. Layout 1, which knew less of the progress, is read; others are refused."""

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
"""What a checkpoint holds, beside the manifest."""

_NAME = re.compile(r"step-(\d{8})|\.step-(\d{8})\.old")
"""A checkpoint, or one that was moved aside for another of its step when the process was killed."""


@dataclasses.dataclass(slots=True)
class Progress:
    """What a run knows beside its weights; data needs no state, for a batch is a function of seed and step.

    Attributes:
        step: Steps done.
        tokens: Tokens trained on.
        best_score: Lowest validation score so far, or None.
        best_step: The step it was reached at.
        evaluated: The last step whose validation is done; None: none is.
        visited: By vocabulary, how many sequences of the epochs' order were taken.
        manner: How the run was carried out: what changes sums only by rounding, and the masks of dropout.
        first: Validation metrics before the first step, by vocabulary.
        data: Fingerprint of each vocabulary's corpus and tokenizer.
        seconds: Of a run that has minutes: how long its steps took, with the validations and checkpoints between them.
        planned: Of such a run: how many steps it was to have, by what was known at this step.
        costs: Of such a run: seconds of a step, a validation and a checkpoint.
    """

    step: int = 0
    tokens: int = 0
    best_score: float | None = None
    best_step: int | None = None
    evaluated: int | None = None
    visited: dict[str, int] = dataclasses.field(default_factory=dict)
    manner: dict[str, str] = dataclasses.field(default_factory=dict)
    first: dict[str, dict[str, float | None]] = dataclasses.field(default_factory=dict)
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    planned: int | None = None
    costs: list[float] | None = None


class Checkpoints:
    """Writes the checkpoints of a run, each in the background while training goes on.

    Args:
        folder: Where they go, in a folder that is there.
        keep: How many of the newest are kept; that of the best step is kept beside them.
        writes: Whether this process writes at all.
        begun: The step that the run begins or goes on at. What lies beyond is abandoned, and goes with the next save.
    """

    def __init__(self, folder: Path, keep: int, writes: bool = True, begun: int = 0) -> None:
        self.folder, self.keep, self.writes = folder, keep, writes
        if writes:
            folder.mkdir(exist_ok=True)
            _tidy(folder)
            for step in _complete(folder):
                if step > begun:
                    path = folder / f"step-{step:08d}"
                    path.rename(path.with_name(f".{path.name}.abandoned"))
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Begins to write the checkpoint of ``progress.step``, as things stand now, and removes old ones after it.

        Raises:
            CheckpointError: if the one before could not be written.
        """
        self.wait()
        if not self.writes:
            return
        files = {"model": _copied(model.state_dict()), "optimizer": _copied(_optimizer_tensors(model, optimizer))}
        state = dataclasses.asdict(progress)
        self._writer = threading.Thread(target=self._write, args=(files, state), daemon=True)
        self._writer.start()

    def check(self) -> None:
        """Does not wait.

        Raises:
            CheckpointError: if the last one that was written could not be, such as on a full disk; what was there
                before stays.
        """
        if self._writer is not None and not self._writer.is_alive():
            self.wait()

    def wait(self) -> None:
        """Returns when everything is on disk.

        Raises:
            CheckpointError: as for :meth:`check`.
        """
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, files: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]) -> None:
        try:
            write_checkpoint(self.folder, files, state)
            remove_old(self.folder, state["step"], state["best_step"], self.keep)
        except BaseException as error:  # it is raised in the thread that trains
            self._error = error


def write_checkpoint(folder: Path, files: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Writes a checkpoint whole or not at all: tensors by file, and the state with the step.

    Raises:
        CheckpointError: if it cannot be written, such as on a full disk; what was there before stays.
    """
    target = folder / f"step-{state['step']:08d}"
    draft = draft_of(target)
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, tensors in files.items():
            save_tensors(tensors, draft / f"{name}.safetensors")
        (draft / "state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        sums = {path.name: checksum(path) for path in sorted(draft.iterdir())}
        manifest = {"layout": LAYOUT, "step": state["step"], "sha256": sums}
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        put_in_place(draft, target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(
            f'The checkpoint of step {state["step"]} cannot be written to "{folder}": {error.strerror or error}. '
            "Checkpoints written before are intact: make room, or mend what is wrong there, then go on (--resume auto)."
        ) from error


def remove_old(folder: Path, newest: int, best: int | None, keep: int) -> None:
    """Removes what is older than the newest ``keep`` and not of the best step, and what was abandoned.

    What is removed is renamed first, so that a kill leaves no checkpoint that looks damaged.
    """
    steps = [step for step in _complete(folder) if step <= newest]
    kept = {*steps[max(0, len(steps) - keep) :], best}
    for path in (folder / f"step-{step:08d}" for step in steps if step not in kept):
        gone = path.with_name(f".{path.name}.removing")
        with suppress(OSError):
            path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    for path in folder.glob(".step-*.abandoned"):
        shutil.rmtree(path, ignore_errors=True)


def _tidy(folder: Path) -> None:
    """Takes away what a kill left half written or half removed, and puts back what it left aside."""
    for step in _complete(folder):
        restore_place(folder / f"step-{step:08d}")
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def newest_checkpoint(folder: Path, warn: Callable[[str], None] = lambda message: None) -> Path | None:
    """The newest checkpoint under ``folder`` that is intact, or None; ``warn`` is told of damaged ones."""
    for step in _complete(folder):
        restore_place(folder / f"step-{step:08d}")
    for step in reversed(_complete(folder)):
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
    if layout not in (1, LAYOUT):
        raise CheckpointError(
            f'The checkpoint "{path}" has layout {layout}, and this version of seqbert reads layouts 1 to {LAYOUT}. '
            "Go on with the version that wrote it."
        )
    for name in FILES:
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if checksum(file) != sums.get(name):
            return f"{name} does not match its checksum"
    return None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    changed: Callable[[str], None] | None = None,
    is_checked: bool = False,
) -> Progress:
    """Puts a checkpoint's weights and optimizer state in place and returns how far it was.

    Args:
        path: The checkpoint.
        model: Takes the weights.
        optimizer: Takes its state.
        changed: Where the model may be another than the checkpoint's: is told which weights begin anew and which are
            left behind.
        is_checked: Whether its checksums are known to be right.

    Raises:
        CheckpointError: if the checkpoint is damaged, or is of another model.
    """
    if not is_checked and (damage := find_damage(path)) is not None:
        raise CheckpointError(f'The checkpoint "{path}" is damaged: {damage}.')
    weights, own = _read_tensors(path / "model.safetensors"), model.state_dict()
    fitting = {name: tensor for name, tensor in weights.items() if name in own and tensor.shape == own[name].shape}
    if len(fitting) < max(len(weights), len(own)):
        if changed is None:
            raise CheckpointError(f'The checkpoint "{path}" is of another model than the config describes.')
        for what, names in (("begin anew", own.keys() - fitting.keys()), ("stay behind", weights.keys() - own.keys())):
            if names:
                changed(f"Weights that {what}: {', '.join(sorted(names))}.")
    model.load_state_dict(own | fitting)
    is_whole = _restore_optimizer(model, optimizer, _read_tensors(path / "optimizer.safetensors"), fitting.keys())
    if not is_whole and changed is not None:
        changed("The optimizer is another one: what it keeps of the weights begins anew.")
    return read_progress(path)


def load_weights(path: Path, model: nn.Module) -> None:
    """Puts the weights of an intact checkpoint of the same model in place, and nothing else.

    Raises:
        CheckpointError: if they cannot be read.
    """
    model.load_state_dict(_read_tensors(path / "model.safetensors"))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f'The checkpoint "{path.parent}" is damaged: {path.name} cannot be read ({error}).'
        ) from error


def read_progress(path: Path) -> Progress:
    """How far a checkpoint is; its weights are not looked at.

    Raises:
        CheckpointError: if that cannot be read.
    """
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return Progress(**({"evaluated": state["step"]} | state))  # layout 1: written after the step's validation
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f'The checkpoint "{path}" is damaged: its state.json cannot be read.') from error


def _complete(folder: Path) -> list[int]:
    """The steps that there is a checkpoint of."""
    names = folder.iterdir() if folder.is_dir() else ()
    return sorted({int(match[1] or match[2]) for path in names if (match := _NAME.fullmatch(path.name))})


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under ``key.parameter``: ``exp_avg.encoder.blocks.0.…``."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key}.{names[parameter]}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], fitting: Collection[str]
) -> bool:
    """Gives the optimizer the state of what fits; whether it was that of an optimizer of its kind."""
    parameters = dict(model.named_parameters())
    fused = {parameter for group in optimizer.param_groups if group.get("fused") for parameter in group["params"]}
    kept = {weight: group.get("state_names") for group in optimizer.param_groups for weight in group["params"]}
    saved: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for full_name, tensor in tensors.items():
        key, name = full_name.split(".", 1)
        saved[name][key] = tensor
    is_whole = True
    for name, state in saved.items():
        if name not in fitting or (parameter := parameters[name]) not in kept:
            continue
        if (names := kept[parameter]) is not None and state.keys() != set(names):
            is_whole = False
            continue
        for key, tensor in state.items():
            device = parameter.device if tensor.ndim else tensor.device
            if key == "step" and parameter in fused:
                device = parameter.device  # the fused kernels read the count where the weights are
            optimizer.state[parameter][key] = tensor.to(device)
    return is_whole


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the host's memory, which training does not change while they are written."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
