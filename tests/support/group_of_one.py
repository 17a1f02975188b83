"""A process group of this process alone, so that what several processes do can be seen in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@contextmanager
def group_of_one(folder: Path, backend: str = "gloo") -> Iterator[Any]:
    """The default group while it is open; gives the group that exchanges what lies in the host's memory."""
    dist.init_process_group(backend, store=dist.FileStore(str(folder / "store"), 1), rank=0, world_size=1)
    try:
        yield dist.new_group(backend="gloo")
    finally:
        dist.destroy_process_group()


class Heads(nn.Module):
    """An encoder with heads, of which a pass uses one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.heads = nn.ModuleDict({name: nn.Linear(8, 3) for name in ("first", "second", "never")})

    def forward(self, inputs: Tensor, head: str) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self.heads[head](self.encoder(inputs).tanh()).square().sum()
        return loss, {head: loss.detach()}


def gradients(module: nn.Module, between: Any, device: str = "cpu") -> dict[str, Tensor | None]:
    """The gradients of two passes by two heads, of which the first runs in the context ``between()``."""
    draw = torch.Generator().manual_seed(3)
    inputs = [torch.randn(4, 6, generator=draw).to(device) for _ in range(2)]
    with between():
        module(inputs[0], "first")[0].backward()
    module(inputs[1], "second")[0].backward()
    return {
        name.removeprefix("module."): None if value.grad is None else value.grad.clone()
        for name, value in module.named_parameters()
    }
