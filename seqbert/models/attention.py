"""Attention over a packed stream: each token sees its own sequence and nothing else.

One function, three backends. ``reference`` is the textbook formula, one sequence at a time, and what the
others are tested against. ``buckets`` hands every run of equally long sequences to PyTorch's fused attention
as one dense block; it runs everywhere. ``varlen`` is FlashAttention over the whole stream, for half precision
on recent NVIDIA cards.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from seqbert.data.packing import PackedBatch

Backend = Literal["reference", "buckets", "varlen"]


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    *,
    causal: bool = False,
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
        dropout: Share of attention weights to zero; the others are scaled up.
        backend: Which implementation; None: the fastest that the device, the precision and the dropout allow.

    Returns:
        ``[tokens, heads, head_dim]``. No row is ever fully masked: a token sees at least itself.

    Raises:
        ValueError: The varlen backend is asked for with dropout, which its kernel does not have.
    """
    match backend or fastest_backend(query, dropout):
        case "reference":
            return reference_attention(query, key, value, batch, causal=causal, dropout=dropout)[0]
        case "buckets":
            return _buckets(query, key, value, batch, causal, dropout)
        case "varlen":
            if dropout:
                raise ValueError("the varlen backend has no dropout")
            return _varlen(query, key, value, batch, causal)


def fastest_backend(query: Tensor, dropout: float) -> Backend:
    """The backend that :func:`packed_attention` takes by itself."""
    flash = (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and dropout == 0  # the kernel has none
        and len(query) > 0
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )
    return "varlen" if flash else "buckets"


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    *,
    causal: bool = False,
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
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        probabilities = scores.softmax(-1)
        weights.append(probabilities)
        outputs.append(torch.einsum("hqk,khd->qhd", F.dropout(probabilities, dropout).to(v.dtype), v))
    return torch.cat(outputs), weights


def _buckets(query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, causal: bool, dropout: float) -> Tensor:
    outputs = []
    start = 0
    # An empty stream passes through as one empty sequence, so that every weight still gets a gradient.
    for count, length in [run for run in batch.runs() if run[1]] or [(1, 0)]:
        stop = start + count * length
        # [count * length, heads, head_dim] seen as [count, heads, length, head_dim], without a copy
        q, k, v = (
            tensor[start:stop].view(count, length, *tensor.shape[1:]).transpose(1, 2) for tensor in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        outputs.append(mixed.transpose(1, 2).flatten(0, 1))
        start = stop
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _varlen(query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, causal: bool) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    longest = max(batch.lengths)
    mixed = varlen_attn(
        query,
        key,
        value,
        batch.cu_seqlens,
        batch.cu_seqlens,
        longest,
        longest,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    assert isinstance(mixed, Tensor)  # a pair only where the log-sum-exp is asked for
    return mixed
