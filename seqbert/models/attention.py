"""Attention over a packed stream: each token sees its own sequence and nothing else.

One function, three backends. ``reference`` is the textbook formula, one sequence at a time, and what the
others are tested against. ``buckets`` hands every run of equally long sequences to PyTorch's fused attention
as one dense block; it runs everywhere. ``varlen`` is FlashAttention over the whole stream, for half precision
on recent NVIDIA cards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqbert.data.packing import PackedBatch
from seqbert.models.dropout import mask

Backend = Literal["reference", "buckets", "varlen"]

PADDING = 8
"""Tokens by which the sequences of a block may differ in length."""

UNFUSED_LENGTH = 1024
"""Longest sequence whose attention weights are held all at once where the unfused formula is faster."""


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    *,
    causal: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
    backend: Backend | None = None,
) -> Tensor:
    """Scaled dot-product attention within each sequence (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: ``[tokens, heads, head_dim]``, as are ``key`` and ``value``.
        key: See ``query``.
        value: See ``query``.
        batch: Says where the sequences begin and end.
        causal: Whether a token sees only itself and those before it.
        window: How many tokens it sees to each side, beside itself; None: all of its sequence.
        dropout: Share of attention weights to zero; the others are scaled up.
        backend: Which implementation; None: the fastest that the device, the precision and the dropout allow.

    Returns:
        ``[tokens, heads, head_dim]``. No row is ever fully masked: a token sees at least itself.

    Raises:
        ValueError: The varlen backend is asked for with dropout, which its kernel does not have.
    """
    match backend or fastest_backend(query, dropout):
        case "reference":
            return reference_attention(query, key, value, batch, causal=causal, window=window, dropout=dropout)[0]
        case "buckets":
            if torch.compiler.is_compiling() and batch.boundaries is not None:
                options = (causal, window, dropout)
                mixed, _ = torch.ops.seqbert.buckets(query, key, value, batch.boundaries, *options)
                return cast(Tensor, mixed)
            return _buckets(query, key, value, batch, causal, window, dropout)
        case "varlen":
            if dropout:
                raise ValueError("the varlen backend has no dropout")
            return _varlen(query, key, value, batch, causal, window)


def fastest_backend(query: Tensor, dropout: float) -> Backend:
    """The backend that :func:`packed_attention` takes by itself."""
    flash = (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and dropout == 0  # the kernel has none
        and len(query) > 0
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
        and _is_recent(query.device)
    )
    return "varlen" if flash else "buckets"


def _is_recent(device: torch.device) -> bool:
    """Whether FlashAttention has kernels for a CUDA device."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


# What torch.compiler.assume_constant_result marks it with: that imports the compiler, a second of every start.
_is_recent._dynamo_marked_constant = True  # type: ignore[attr-defined]


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    *,
    causal: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """The same as :func:`packed_attention`, and the weights of each sequence, ``[heads, length, length]``.

    Rows of the weights sum to 1; they are those before dropout.
    """
    precise = torch.promote_types(query.dtype, torch.float32)  # half precision overflows in the exponent
    outputs, weights = [], []
    lengths = list(batch.lengths) or [0]  # an empty stream is one empty sequence, as for the others
    parts = (torch.split(tensor, lengths) for tensor in (query, key, value))
    for q, k, v in zip(*parts, strict=True):
        scores = torch.einsum("qhd,khd->hqk", q.to(precise) / math.sqrt(q.shape[-1]), k.to(precise))
        hidden = _out_of_sight(len(q), causal, window)
        if hidden is not None:
            scores = scores.masked_fill(hidden.to(q.device), -math.inf)
        probabilities = scores.softmax(-1)
        weights.append(probabilities)
        outputs.append(torch.einsum("hqk,khd->qhd", F.dropout(probabilities, dropout).to(v.dtype), v))
    return torch.cat(outputs), weights


def _out_of_sight(length: int, causal: bool, window: int | None) -> Tensor | None:
    """Which keys each query of a sequence must not look at, ``[length, length]``; None where it may look at all."""
    everything = torch.ones(length, length, dtype=torch.bool)
    hidden = everything.triu(1) if causal else None
    if window is not None and length > window + 1:
        far = everything.triu(window + 1) | everything.tril(-window - 1)
        hidden = far if hidden is None else hidden | far
    return hidden


def _buckets(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    causal: bool,
    window: int | None,
    dropout: float,
) -> Tensor:
    layout = layout_of(batch.lengths)
    place = None if layout.place is None else layout.place.to(query.device, non_blocking=True)
    unfused = _is_unfused_faster(query, dropout, max(batch.lengths, default=0))
    masks: Sequence[Tensor | None] = [None] * len(layout.blocks)
    if unfused and dropout:
        weights = [count * query.shape[1] * length * length for count, length, _ in layout.blocks]
        masks = torch.split(mask(torch.Size([sum(weights)]), dropout, value.dtype), weights)
    outputs = []
    parts = (layout.parts(stream, place) for stream in (query, key, value))
    for (_, length, lengths), kept, q, k, v in zip(layout.blocks, masks, *parts, strict=True):
        if unfused:
            mixed = _unfused(q, k, v, bias_of(length, lengths, causal, window, q), kept)
        else:
            only_causal = causal and lengths is None and (window is None or length <= window + 1)
            bias = None if only_causal else bias_of(length, lengths, causal, window, q)
            mixed = F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout, is_causal=only_causal)
        outputs.append(mixed.transpose(1, 2).flatten(0, 1))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined if place is None else cast(Tensor, _Gather.apply(joined, place))  # type: ignore[no-untyped-call]


def _unfused(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, kept: Tensor | None) -> Tensor:
    """The formula over a block, ``[count, heads, length, head_dim]``; ``kept`` is the dropout mask of its weights."""
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    weights: Tensor = (scores if bias is None else scores + bias).softmax(-1).to(value.dtype)
    if kept is not None:
        weights = weights * kept.view(weights.shape)
    return weights @ value


def _is_unfused_faster(query: Tensor, dropout: float, longest: int) -> bool:
    """Whether the formula itself is faster than PyTorch's kernel.

    On the CPU there is no fused kernel with dropout. In bfloat16 the one without took 1.3 to 2.6 times as long, forward
    and backward, for lengths up to 512 (torch 2.13, AVX-512 with bf16).
    """
    if query.device.type != "cpu":
        return False
    return dropout > 0 or (query.dtype == torch.bfloat16 and longest <= UNFUSED_LENGTH)


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """How the sequences of a stream become dense blocks.

    Attributes:
        tokens: Rows of all blocks together.
        place: The row of each token of the stream, ``[tokens of the stream]``; None where no block is padded.
        blocks: Number of sequences and length of each block, and the sequences' own lengths where it is padded.
    """

    tokens: int
    place: Tensor | None
    blocks: list[tuple[int, int, Tensor | None]]

    def parts(self, stream: Tensor, place: Tensor | None) -> list[Tensor]:
        """``[tokens, heads, head_dim]`` by block, ``[count, heads, length, head_dim]``; views, where nothing is padded.

        The gradient of a split is one concatenation; that of a slice would be as large as the stream for every block.

        Args:
            stream: Rows of the stream's tokens.
            place: :attr:`place` on the stream's device.
        """
        rows = stream if place is None else spread(stream, place, self.tokens)
        split = torch.split(rows, [count * length for count, length, _ in self.blocks])
        return [
            part.view(count, length, *part.shape[1:]).transpose(1, 2)
            for (count, length, _), part in zip(self.blocks, split, strict=True)
        ]


@lru_cache(maxsize=64)
def layout_of(lengths: tuple[int, ...]) -> _Layout:
    """Neighbours of nearly equal length share a block, padded to the longest of them: fewer and larger products.

    Without sequences there is one empty block, so that every weight still gets a gradient.
    """
    blocks: list[list[int]] = []
    for length in lengths:
        block = blocks[-1] if blocks else None
        if block and max(*block, length) - min(*block, length) <= PADDING:
            block.append(length)
        elif length:
            blocks.append([length])
    rows, start, tokens = [], 0, 0
    described: list[tuple[int, int, Tensor | None]] = []
    for block in blocks:
        longest = max(block)
        rows += [start + number * longest + np.arange(length) for number, length in enumerate(block)]
        start += len(block) * longest
        tokens += sum(block)
        even = min(block) == longest
        described.append((len(block), longest, None if even else torch.tensor(block)))
    if not described:
        return _Layout(0, None, [(1, 0, None)])
    place = None if start == tokens else torch.from_numpy(np.concatenate(rows))
    return _Layout(start, place, described)


def bias_of(length: int, lengths: Tensor | None, causal: bool, window: int | None, like: Tensor) -> Tensor | None:
    """What is added to the scores of a block: minus infinity where a token must not look; None where it may anywhere.

    ``[count, 1, 1, length]`` for padded keys, ``[length, length]`` for later and far ones, or both together. Queries
    that are padding themselves see the first token beside what they may see, so that no row is without a key.
    """
    hidden = _out_of_sight(length, causal, window)
    if lengths is not None:
        padded = (torch.arange(length)[None, :] >= lengths[:, None])[:, None, None, :]
        if hidden is not None and window is not None:
            hidden = hidden.repeat(len(lengths), 1, 1, 1)
            hidden[..., 0] &= ~padded.squeeze(1).squeeze(1)[:, None, :]
        hidden = padded if hidden is None else hidden | padded
    if hidden is None:
        return None
    return torch.zeros(hidden.shape, dtype=like.dtype).masked_fill(hidden, -math.inf).to(like.device)


def spread(rows: Tensor, place: Tensor, tokens: int) -> Tensor:
    """Rows put at their places among ``tokens`` rows, the others 0."""
    return rows.new_zeros(tokens, *rows.shape[1:]).index_copy(0, place, rows)


class _Gather(torch.autograd.Function):
    """``rows[place]`` for places that differ; PyTorch's own gradient would add row after row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(place)
        ctx.size = rows.shape[0]
        return rows.index_select(0, place)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (place,) = ctx.saved_tensors
        return spread(gradients[0], place, ctx.size), None


def _varlen(query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, causal: bool, window: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    longest = batch.longest
    before = -1 if window is None else window
    mixed = varlen_attn(
        query,
        key,
        value,
        batch.cu_seqlens,
        batch.cu_seqlens,
        longest,
        longest,
        window_size=(before, 0 if causal else before),
    )
    assert isinstance(mixed, Tensor)  # a pair only where the log-sum-exp is asked for
    return mixed
