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
        each: The cross-entropy of each target, ``[targets]``; None in training.
    """

    loss: Tensor
    targets: int
    correct: Tensor | None
    each: Tensor | None = None


def cross_entropy(logits: Tensor, labels: Tensor) -> Term:
    """The term for ``logits [targets, classes]`` and ``labels [targets]``, summed in full precision.

    Without targets the loss is 0 and still reaches every parameter, so that no rank waits for a gradient.
    """
    if not len(labels):
        return Term(in_full_precision(logits).sum(), 0, None)
    if torch.is_grad_enabled():
        return Term(F.cross_entropy(in_full_precision(logits), labels, reduction="sum"), len(labels), None)
    chances = in_full_precision(logits).log_softmax(-1)  # what cross_entropy takes first, so that the sum is the same
    each = -chances.gather(1, labels[:, None]).squeeze(1)
    return Term(F.nll_loss(chances, labels, reduction="sum"), len(labels), (logits.argmax(-1) == labels).sum(), each)


def in_full_precision(logits: Tensor) -> Tensor:
    """Logits in float32 where they are of half precision; float64 stays.

    >>> [in_full_precision(torch.zeros(1, dtype=dtype)).dtype for dtype in (torch.bfloat16, torch.float64)]
    [torch.float32, torch.float64]
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
