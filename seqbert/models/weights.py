"""Tensors on disk: safetensors, with the permissions that any other file would get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes tensors by name; copies are taken to the CPU.

    Raises:
        OSError: if the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode  # the library puts a file in its place that only the owner can read
    try:
        save_file(on_cpu, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from error
    path.chmod(mode)
