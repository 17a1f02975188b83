"""What a loss term gives back: sums and counts, never means."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Term(NamedTuple):
    """One term of the loss over a batch.

    Attributes:
        loss: Sum of the cross-entropy over the targets, in nats; a scalar that carries the gradient.
        targets: Number of targets.
        correct: Number of targets whose most probable class is the true one; None in training.
    """

    loss: Tensor
    targets: int
    correct: Tensor | None


def cross_entropy(logits: Tensor, labels: Tensor) -> Term:
    """The term for ``logits [targets, classes]`` and ``labels [targets]``, summed in float32.

    Without targets the loss is 0 and still reaches every parameter, so that no rank waits for a gradient.
    """
    if not len(labels):
        return Term(logits.float().sum(), 0, None)
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    correct = None if torch.is_grad_enabled() else (logits.argmax(-1) == labels).sum()
    return Term(loss, len(labels), correct)
