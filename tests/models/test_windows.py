import math

import numpy as np
import pytest
import torch

from seqbert.data.packing import pack
from seqbert.models.attention import packed_attention, reference_attention

LENGTHS = [[1], [5, 5, 5], [1, 1, 4, 9, 9, 30], [4, 12, 12], [0, 3, 0], [17, 20, 25]]


def stream(lengths, dtype=torch.float64):
    batch = pack("x", [np.zeros(length, np.int64) for length in lengths])
    generator = torch.Generator().manual_seed(0)
    parts = (torch.randn(batch.tokens, 2, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    return batch, *(part.to(dtype).requires_grad_() for part in parts)


def values_and_gradients(inputs, batch, **options):
    output = packed_attention(*inputs, batch, **options)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype)
    return output, torch.autograd.grad((output.flatten() * weights).sum(), inputs)


@pytest.mark.parametrize("window", [1, 2, 8, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_no_weight_is_given_beyond_the_window(window: int, causal: bool) -> None:
    batch, query, key, value = stream([3, 20])
    _, weights = reference_attention(query, key, value, batch, causal=causal, window=window)
    for number, length in enumerate((3, 20)):
        distance = torch.arange(length)[:, None] - torch.arange(length)
        allowed = (distance.abs() <= window) & (distance >= (0 if causal else -length))
        assert torch.equal(weights[number] > 0, allowed.expand(2, -1, -1))
        torch.testing.assert_close(weights[number].sum(-1), torch.ones(2, length, dtype=torch.float64))


def test_a_window_is_the_textbook_formula_over_the_neighbours() -> None:
    batch, query, key, value = stream([9])
    output = packed_attention(query, key, value, batch, window=2)
    for place in range(9):
        near = slice(max(0, place - 2), place + 3)
        scores = torch.einsum("hd,khd->hk", query[place], key[near]) / math.sqrt(8)
        torch.testing.assert_close(output[place], torch.einsum("hk,khd->hd", scores.softmax(-1), value[near]))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("window", [1, 4, 64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_buckets_with_a_window_equal_the_reference_in_value_and_gradient(lengths, window, causal, dtype) -> None:
    batch, *inputs = stream(lengths, dtype)
    options = {"causal": causal, "window": window}
    expected = values_and_gradients(inputs, batch, backend="reference", **options)
    torch.testing.assert_close(values_and_gradients(inputs, batch, backend="buckets", **options), expected)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("window", [1, 4, 64])
def test_windows_in_half_precision_are_within_its_rounding(lengths, window) -> None:
    batch, *inputs = stream(lengths, torch.bfloat16)
    expected = values_and_gradients(inputs, batch, backend="reference", window=window)
    found = values_and_gradients(inputs, batch, backend="buckets", window=window)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("window", [1, 2])
def test_padding_within_a_block_is_finite_under_a_window_that_is_shorter_than_it(window: int) -> None:
    batch, *inputs = stream([2, 9], torch.float32)
    output, gradients = values_and_gradients(inputs, batch, backend="buckets", window=window)
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
