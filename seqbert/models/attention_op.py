"""Attention by buckets as one operator, for graphs that are compiled: what it does with lengths is not traced.

A graph that torch.compile makes holds for every batch of a static shape, and the layout of blocks is another for each.
Importing this module makes the operator known as ``torch.ops.seqbert.buckets``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from seqbert.models.attention import bias_of, layout_of

_ARGUMENTS = "Tensor query, Tensor key, Tensor value, Tensor boundaries, bool causal, int? window, float dropout"


@torch.library.custom_op("seqbert::buckets", mutates_args=(), schema=f"({_ARGUMENTS}) -> (Tensor, Tensor)")
def buckets(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, causal: bool, window: int | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attention within each sequence, and the seed of its dropout.

    Args:
        query: ``[tokens, heads, head_dim]``, as are ``key`` and ``value``.
        key: See ``query``.
        value: See ``query``.
        boundaries: ``[sequences + 1]``, on the host.
        causal: Whether a token sees only itself and those before it.
        window: How many tokens it sees to each side; None: all of its sequence.
        dropout: Share of attention weights to zero; the seed is drawn from PyTorch's default generator.
    """
    seed = torch.randint(2**62, (), dtype=torch.int64) if dropout else torch.zeros((), dtype=torch.int64)
    blocks = _Blocks(query, boundaries, causal, window, dropout, int(seed))
    mixed = blocks.joined([weights @ v for (_, _, v), _, weights in blocks.over(query, key, value)])
    return mixed, seed


@torch.library.custom_op(
    "seqbert::buckets_backward",
    mutates_args=(),
    schema=f"(Tensor gradient, Tensor seed, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
)
def buckets_backward(
    gradient: Tensor,
    seed: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    boundaries: Tensor,
    causal: bool,
    window: int | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value; the weights are computed anew."""
    blocks = _Blocks(query, boundaries, causal, window, dropout, int(seed))
    of_blocks: tuple[list[Tensor], ...] = ([], [], [])
    slopes = iter(blocks.parts(gradient))
    for (q, k, v), weights, kept in blocks.over(query, key, value):
        slope = next(slopes)
        by_kept = slope @ v.transpose(2, 3)
        by_weights = by_kept if kept is weights else by_kept * (kept != 0) / (1 - dropout)
        by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        for gradients, part in zip(
            of_blocks, (by_scores @ k, by_scores.transpose(2, 3) @ q, kept.transpose(2, 3) @ slope), strict=True
        ):
            gradients.append(part)
    by_query, by_key, by_value = (blocks.joined(gradients) for gradients in of_blocks)
    return by_query, by_key, by_value


class _Blocks:
    """The dense blocks of a stream, of which each holds sequences of nearly equal length."""

    def __init__(
        self, like: Tensor, boundaries: Tensor, causal: bool, window: int | None, dropout: float, seed: int
    ) -> None:
        self._layout = layout_of(tuple(boundaries.diff().tolist()))
        place = self._layout.place
        self._place = None if place is None else place.to(like.device, non_blocking=True)
        self._causal, self._window, self._dropout = causal, window, dropout
        self._draws = torch.Generator(like.device).manual_seed(seed) if dropout else None

    def parts(self, stream: Tensor) -> list[Tensor]:
        """``[tokens, heads, head_dim]`` by block, ``[count, heads, length, head_dim]``."""
        return self._layout.parts(stream, self._place)

    def over(self, *streams: Tensor) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor]]:
        """Of each block the parts of query, key and value, and the weights before and after dropout."""
        for (_, length, lengths), *parts in zip(self._layout.blocks, *map(self.parts, streams), strict=True):
            query, key, _ = parts
            scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
            bias = bias_of(length, lengths, self._causal, self._window, query)
            weights = (scores if bias is None else scores + bias).softmax(-1)
            kept = weights
            if self._draws is not None:
                draw = torch.rand(weights.shape, generator=self._draws, device=weights.device)
                kept = weights * (draw >= self._dropout) / (1 - self._dropout)
            yield tuple(parts), weights, kept

    def joined(self, blocks: list[Tensor]) -> Tensor:
        """Back to ``[tokens, heads, head_dim]``."""
        rows = torch.cat([block.transpose(1, 2).flatten(0, 1) for block in blocks])
        return rows if self._place is None else rows.index_select(0, self._place)


@buckets.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), torch.empty((), dtype=torch.int64)


@buckets_backward.register_fake
def _(gradient: Tensor, seed: Tensor, query: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, causal, window, dropout = inputs
    ctx.save_for_backward(output[1], *tensors)
    ctx.options = causal, window, dropout


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.seqbert.buckets_backward(gradient, *ctx.saved_tensors, *ctx.options)
    return (*gradients, None, None, None, None)


buckets.register_autograd(_backward, setup_context=_keep)
