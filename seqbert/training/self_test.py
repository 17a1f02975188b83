"""Whether a device computes what the CPU does: one small step on both, before a run trusts it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqbert.data.packing import PackedBatch
from seqbert.models.config import EncoderConfig
from seqbert.models.losses import cross_entropy
from seqbert.models.model import Model

TOLERANCE = 1e-2
"""Of the largest gradient of a weight: rounding differs by device, and products may be in TF32; a wrong kernel is off
by more."""

NOTHING = 1e-4
"""Of the largest value, what counts as 0: the gradient of a key's bias is nothing but rounding."""

LENGTHS = (1, 3, 17, 17, 40)

Results = dict[str, Tensor]


def warning_about(device: torch.device, step: Callable[[torch.device], Results] | None = None) -> str | None:
    """What to tell the user of a device that computes otherwise than the CPU; None where there is nothing to tell.

    Kernels of some devices have been wrong without notice, so that training went on to worse results there.

    Args:
        device: The device.
        step: Gives the loss and gradients of a step on a device; None: :func:`one_step`.
    """
    if device.type == "cpu" and step is None:
        return None
    step = step or one_step
    expected, found = step(torch.device("cpu")), step(device)
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        scale = float(value.abs().max())
        difference = float((found[name] - value).abs().max())
        if not difference <= TOLERANCE * max(scale, NOTHING * largest):  # also where it is not a number
            return (
                f"The device {device} does not compute what the CPU does: in a small step that is run on both, {name} "
                f"differs by {difference:.2g}, and its largest value is {scale:.2g}. Training there may end in worse "
                "results without notice: update PyTorch and the driver, or set run.device to cpu."
            )
    return None


def one_step(device: torch.device) -> Results:
    """The loss of a small encoder on a fixed batch and the gradient of each weight, in fp32, computed on a device."""
    config = EncoderConfig(64, 2, 4, 128, max_position_embeddings=64, dropout=0.0)
    model = Model(config, {"test": 100}, {"test": ["masked_lm", "pair"]})
    model.initialise(0)
    draw = np.random.default_rng(0)
    ids = draw.integers(100, size=sum(LENGTHS))
    batch = PackedBatch.of("test", ids, ids % 2, np.array(LENGTHS), np.arange(len(LENGTHS)), {})
    index, labels = torch.from_numpy(np.flatnonzero(ids % 5 == 0)), torch.from_numpy(ids[ids % 5 == 0])
    classes = torch.arange(len(LENGTHS)) % 2
    model, batch = model.to(device), batch.to(device)
    hidden = model(batch)
    first = hidden[batch.cu_seqlens[:-1].long()]
    tokens = cross_entropy(model.heads["test"]["masked_lm"](hidden[index.to(device)]), labels.to(device))  # type: ignore[index]
    pairs = cross_entropy(model.heads["test"]["pair"](first), classes.to(device))  # type: ignore[index]
    loss = tokens.loss + pairs.loss
    torch.autograd.backward(loss)
    gradients = {
        f"the gradient of {name}": weight.grad.cpu()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return {"the loss": loss.detach().cpu(), **gradients}
