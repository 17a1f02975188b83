"""What a loss term gives back: sums and counts, never means."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = {"cpu": 1 << 19}
"""By device, the logits that are normalised at once: on a CPU what its caches hold."""

MOST_AT_ONCE = 1 << 28
"""The same where a device is not named."""


class Term(NamedTuple):
    """One term of the loss over a batch.

    Attributes:
        loss: Sum of the cross-entropy over the targets, in nats; a scalar that carries the gradient.
        targets: Number of targets.
        correct: Number of targets whose most probable class is the true one; None in training.
        each: The cross-entropy of each target, ``[targets]``; None in training.
        of: The term whose targets it is summed over, if it has none of its own.
    """

    loss: Tensor
    targets: int
    correct: Tensor | None
    each: Tensor | None = None
    of: str | None = None


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Term:
    """The term for ``logits [targets, classes]`` and ``labels [targets]``, summed in full precision.

    Without targets the loss is 0 and still reaches every parameter, so that no rank waits for a gradient. A ``weight``
    of each target, ``[targets]``, is for training alone.
    """
    if not len(labels):
        return Term(in_full_precision(logits).sum(), 0, None)
    if weight is not None:
        each = F.cross_entropy(in_full_precision(logits), labels, reduction="none")
        return Term(weighted_sum(each, weight), len(labels), None)
    if torch.is_grad_enabled():
        return Term(F.cross_entropy(in_full_precision(logits), labels, reduction="sum"), len(labels), None)
    chances = in_full_precision(logits).log_softmax(-1)  # what cross_entropy takes first, so that the sum is the same
    each = -chances.gather(1, labels[:, None]).squeeze(1)
    return Term(F.nll_loss(chances, labels, reduction="sum"), len(labels), (logits.argmax(-1) == labels).sum(), each)


class LinearCrossEntropy(torch.autograd.Function):
    """The cross-entropy of a linear layer so wide that its outputs are most of what a step keeps.

    ``apply(hidden, weight, bias, labels)`` gives ``cross_entropy(hidden @ weight.T + bias, labels)`` of each target and
    the logarithm of each softmax's normaliser, ``[targets]`` each, in float32 or what is more precise.

    Logits are there once, in the precision of ``hidden``, and turn into their own gradient while they are in the cache:
    neither a copy in full precision nor the probabilities are ever written. The weight is cast to that precision, and
    its gradient is of the weight's own.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """``hidden [targets, width]``, ``weight [classes, width]``, ``bias [classes]``, ``labels [targets]``."""
        cast = weight.to(hidden.dtype)
        logits = F.linear(hidden, cast, bias.to(hidden.dtype))
        rows = max(1, CHUNK.get(logits.device.type, MOST_AT_ONCE) // logits.shape[1])
        each, normalisers = [], []
        for some, wanted in zip(torch.split(logits, rows), torch.split(labels[:, None], rows), strict=True):
            precise = in_full_precision(some)
            chances = precise.softmax(-1)
            normalisers.append(precise.amax(-1) - chances.amax(-1).log())  # the largest chance is never too small
            each.append(normalisers[-1] - precise.gather(1, wanted).squeeze(1))
            some.copy_(chances.scatter_add_(1, wanted, precise.new_full(wanted.shape, -1.0)))
        ctx.save_for_backward(hidden, cast, logits, labels)
        ctx.precision = weight.dtype
        ctx.set_materialize_grads(False)  # what is not used has no gradient, rather than one of zeros
        return torch.cat(each), torch.cat(normalisers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Of the cross-entropies and the normalisers, ``[targets]`` each; None of what is not used."""
        hidden, weight, slopes, labels = ctx.saved_tensors  # slopes: of the cross-entropies by the logits
        used = [gradient[:, None] for gradient in gradients if gradient is not None]
        if not used:
            return None, None, None, None
        scale = sum(used[1:], used[0])
        by_hidden = scale * (slopes @ weight)
        by_weight = (slopes.t() @ (scale * hidden).to(hidden.dtype)).to(ctx.precision)
        # All rows may have one scale: rounded to half precision it would be wrong by as much for all of them.
        rounded = scale.to(hidden.dtype)
        scales = torch.cat((rounded, (scale - rounded).to(hidden.dtype)), 1)
        by_bias = (slopes.t() @ scales).to(ctx.precision).sum(1)
        if gradients[1] is not None:  # the slope of a normaliser is that of the cross-entropy, and 1 more at the label
            more = gradients[1][:, None]
            by_hidden = by_hidden + more * weight[labels]
            by_weight.index_add_(0, labels, (more * hidden).to(ctx.precision))
            by_bias.index_add_(0, labels, more.squeeze(1).to(ctx.precision))
        return by_hidden.to(hidden.dtype), by_weight, by_bias, None


def weighted_sum(each: Tensor, weight: Tensor | None) -> Tensor:
    """The sum of ``each [targets]``, where a weight is given by ``weight [targets]``."""
    return each.sum() if weight is None else (each * weight).sum()


def z_loss(normalisers: Tensor, of: str, weight: Tensor | None = None) -> Term:
    """The squares of the logarithms of the softmax's normalisers, ``[targets]``, summed over the targets of a term.

    Added to the loss with a small weight it keeps logits near those whose softmax needs no normalising, so that they
    do not drift to where half precision is coarse (Chowdhery et al. 2022, *PaLM*, section 5).

    >>> z_loss(torch.tensor([2.0, 3.0]), of="masked_lm").loss
    tensor(13.)
    """
    return Term(weighted_sum(normalisers.square(), weight), len(normalisers), None, of=of)


def in_full_precision(logits: Tensor) -> Tensor:
    """Logits in float32 where they are of half precision; float64 stays.

    >>> [in_full_precision(torch.zeros(1, dtype=dtype)).dtype for dtype in (torch.bfloat16, torch.float64)]
    [torch.float32, torch.float64]
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
