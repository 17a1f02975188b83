import math

import numpy as np
import pytest
import torch

from seqbert.data.packing import pack
from seqbert.models.attention import fastest_backend, packed_attention, reference_attention


def stream(lengths, dtype=torch.float64, device="cpu"):
    batch = pack("x", [np.zeros(length, np.int64) for length in lengths]).to(torch.device(device))
    generator = torch.Generator().manual_seed(0)
    return batch, *(
        torch.randn(batch.tokens, 3, 8, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_()
        for _ in range(3)
    )


def values_and_gradients(inputs, batch, **options):
    output = packed_attention(*inputs, batch, **options)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
    return output, torch.autograd.grad((output.flatten() * weights).sum(), inputs)


def test_the_reference_is_the_textbook_formula() -> None:
    batch, query, key, value = stream([3])
    output, (weights,) = reference_attention(query, key, value, batch)
    for head in range(3):
        scores = query[:, head] @ key[:, head].T / math.sqrt(8)
        expected = scores.exp() / scores.exp().sum(1, keepdim=True)
        torch.testing.assert_close(weights[head], expected)
        torch.testing.assert_close(output[:, head], expected @ value[:, head])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [1, 1, 4, 9, 9, 30], [4, 2, 4], [0, 3, 0]])
def test_buckets_equal_the_reference_in_value_and_gradient(lengths: list[int], causal: bool) -> None:
    batch, *inputs = stream(lengths)
    expected = values_and_gradients(inputs, batch, causal=causal, backend="reference")
    torch.testing.assert_close(values_and_gradients(inputs, batch, causal=causal, backend="buckets"), expected)


@pytest.mark.parametrize("backend", ["reference", "buckets"])
@pytest.mark.parametrize("lengths", [[], [0]])
def test_a_stream_without_tokens_gives_one_without_tokens(backend, lengths: list[int]) -> None:
    batch, *inputs = stream(lengths)
    output = packed_attention(*inputs, batch, backend=backend)
    assert output.shape == (0, 3, 8)
    assert all(gradient.shape == (0, 3, 8) for gradient in torch.autograd.grad(output.sum(), inputs))


@pytest.mark.parametrize("backend", ["reference", "buckets"])
def test_causal_attention_does_not_look_ahead(backend) -> None:
    batch, query, key, value = stream([4, 6])
    with torch.no_grad():
        before = packed_attention(query, key, value, batch, causal=True, backend=backend)
        key[8:] += 1
        value[8:] += 1
        after = packed_attention(query, key, value, batch, causal=True, backend=backend)
    torch.testing.assert_close(after[:8], before[:8], rtol=0, atol=0)
    assert not torch.equal(after[8:], before[8:])


@pytest.mark.parametrize("backend", ["reference", "buckets"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_row72_every_backend_is_finite_in_every_precision_also_for_single_tokens(
    backend, dtype: torch.dtype, causal: bool
) -> None:
    batch, *inputs = stream([0, 1, 1, 7], dtype)
    scaled = [tensor * 30 for tensor in inputs]
    output = packed_attention(*scaled, batch, causal=causal, backend=backend)
    assert output.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(output.float().sum(), inputs))
    torch.testing.assert_close(output[:2], scaled[2][:2])  # a token alone attends to itself


def test_dropout_zeroes_weights_and_keeps_their_mean() -> None:
    batch, query, key, _ = stream([64] * 32, torch.float32)
    ones = torch.ones_like(query)
    for backend in ("reference", "buckets"):
        torch.manual_seed(0)
        output = packed_attention(query, key, ones, batch, dropout=0.5, backend=backend)
        assert output.std() > 0.01
        assert abs(output.mean().item() - 1) < 0.02


def test_varlen_refuses_dropout_rather_than_leave_it_out() -> None:
    batch, *inputs = stream([2], torch.bfloat16, "meta")
    with pytest.raises(ValueError, match="no dropout"):
        packed_attention(*inputs, batch, dropout=0.1, backend="varlen")


def test_the_cpu_takes_buckets() -> None:
    assert fastest_backend(torch.zeros(1, 1, 64, dtype=torch.bfloat16), 0.0) == "buckets"


@pytest.mark.parametrize("causal", [False, True])
def test_this_torch_understands_the_call_of_varlen(causal: bool) -> None:
    batch, *inputs = stream([1, 4, 4], torch.bfloat16, "meta")
    output, gradients = values_and_gradients(inputs, batch, causal=causal, backend="varlen")
    assert [tensor.shape for tensor in (output, *gradients)] == [(9, 3, 8)] * 4


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_varlen_equals_the_reference_in_value_and_gradient(dtype: torch.dtype, causal: bool) -> None:
    batch, *inputs = stream([1, 1, 4, 9, 9, 200], dtype, "cuda")
    assert fastest_backend(inputs[0], 0.0) == "varlen"
    expected = values_and_gradients(inputs, batch, causal=causal, backend="reference")
    torch.testing.assert_close(
        values_and_gradients(inputs, batch, causal=causal, backend="varlen"), expected, rtol=2e-2, atol=2e-2
    )


@pytest.mark.gpu
def test_the_gpu_takes_varlen_only_where_its_kernel_can() -> None:
    query = torch.zeros(4, 2, 64, dtype=torch.bfloat16, device="cuda")
    assert fastest_backend(query, 0.0) == "varlen"
    assert fastest_backend(query, 0.1) == "buckets"
    assert fastest_backend(query.float(), 0.0) == "buckets"
    assert fastest_backend(query[..., :20], 0.0) == "buckets"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(3, 4, 9, 11, 12), (7, 7, 8), (5,), (1, 2, 30, 33, 33, 60), (12, 3, 4)])
def test_sequences_of_nearly_equal_length_share_a_block_and_see_themselves_alone(lengths, causal):
    """The padding of a block is never attended to, and gives no gradient."""
    batch = pack("letters", [np.zeros(length, np.int64) for length in lengths])
    generator = torch.Generator().manual_seed(0)
    found = []
    for backend in ("buckets", "reference"):
        parts = [torch.randn(batch.tokens, 2, 8, generator=generator.manual_seed(n)) for n in range(3)]
        leaves = [part.requires_grad_() for part in parts]
        mixed = packed_attention(*leaves, batch, causal=causal, backend=backend)
        mixed.square().sum().backward()
        found.append([mixed.detach(), *(leaf.grad for leaf in leaves)])
    for ours, expected in zip(*found, strict=True):
        assert torch.allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_the_unfused_formula_with_a_share_of_nearly_nothing_is_the_fused_one(causal):
    batch = pack("letters", [np.zeros(length, np.int64) for length in (5, 9, 9, 40)])
    torch.manual_seed(0)
    parts = [torch.randn(batch.tokens, 2, 8) for _ in range(3)]
    expected = packed_attention(*parts, batch, causal=causal, backend="buckets")
    found = packed_attention(*parts, batch, causal=causal, backend="buckets", dropout=1e-9)
    assert torch.allclose(found, expected, atol=1e-5)
    half = [part.bfloat16() for part in parts]
    coarse = packed_attention(*half, batch, causal=causal, backend="buckets")
    assert torch.allclose(coarse.float(), expected, atol=0.05)
