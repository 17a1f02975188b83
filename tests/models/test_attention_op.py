"""Attention as one operator, as compiled graphs hold it."""

import numpy as np
import pytest
import torch

import seqbert.models.attention_op  # noqa: F401
from seqbert.data.packing import PackedBatch, pack
from seqbert.models.attention import packed_attention


def stream(lengths: list[int], dtype: torch.dtype = torch.float64) -> tuple[PackedBatch, list[torch.Tensor]]:
    batch = pack("x", [np.zeros(length, np.int64) for length in lengths])
    draw = torch.Generator().manual_seed(0)
    return batch, [
        torch.randn(batch.tokens, 3, 8, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def attend(batch: PackedBatch, inputs: list[torch.Tensor], causal=False, window=None, dropout=0.0) -> torch.Tensor:
    return torch.ops.seqbert.buckets(*inputs, batch.cu_seqlens, causal, window, dropout)[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 2, 8])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [1, 1, 4, 9, 9, 30], [4, 2, 4], [0, 3, 0]])
def test_the_operator_equals_the_reference_in_value_and_gradient(lengths, window: int | None, causal: bool) -> None:
    batch, inputs = stream(lengths)
    slope = torch.linspace(-1, 1, batch.tokens * 24, dtype=torch.float64).view(-1, 3, 8)
    found = []
    for given in (
        attend(batch, inputs, causal, window),
        packed_attention(*inputs, batch, causal=causal, window=window, backend="reference"),
    ):
        found.append((given, *torch.autograd.grad(given, inputs, slope)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_row72_the_operator_is_finite_in_every_precision_also_for_single_tokens(dtype: torch.dtype) -> None:
    batch, inputs = stream([0, 1, 1, 7, 0], dtype)
    scaled = [tensor * 30 for tensor in inputs]
    output = attend(batch, scaled, window=2)
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(output.float().sum(), inputs))
    torch.testing.assert_close(output[:2], scaled[2][:2])


def test_dropout_of_the_operator_keeps_the_mean_and_its_gradient_sees_the_same_mask() -> None:
    batch, (query, key, _) = stream([64] * 16, torch.float32)
    value = torch.ones_like(query).requires_grad_()
    torch.manual_seed(0)
    output = attend(batch, [query, key, value], dropout=0.5)
    assert output.std() > 0.01
    assert abs(output.mean().item() - 1) < 0.02
    # The output is linear in the values, so it is their product with the gradient that one mask gave.
    slope = torch.randn_like(output)
    (by_value,) = torch.autograd.grad(output, value, slope)
    torch.testing.assert_close((by_value * value).sum(), (slope * output).sum(), rtol=1e-4, atol=1e-3)


def test_what_the_operator_says_of_itself_to_the_compiler_is_true() -> None:
    batch, inputs = stream([1, 4, 4, 0], torch.float32)
    arguments = (*inputs, batch.cu_seqlens, False, 2, 0.0)
    torch.library.opcheck(torch.ops.seqbert.buckets.default, arguments)
