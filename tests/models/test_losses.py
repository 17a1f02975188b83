import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqbert.models import losses
from seqbert.models.losses import LinearCrossEntropy


def problem(dtype: torch.dtype, targets: int = 50, classes: int = 301) -> list[Tensor]:
    """Hidden states, weight, bias and labels; some targets are nearly certain, some nearly impossible."""
    torch.manual_seed(0)
    hidden = torch.randn(targets, 16).to(dtype).requires_grad_()
    weight, bias = torch.randn(classes, 16).requires_grad_(), torch.randn(classes).requires_grad_()
    with torch.no_grad():
        hidden[::4] *= 8
        labels = F.linear(hidden.float(), weight).argmax(-1)
        labels[::3] = torch.randint(classes, (len(labels[::3]),))
    return [hidden, weight, bias, labels]


def gradients(each: Tensor, normalisers: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
    loss = (each * torch.linspace(0.5, 1.5, len(each))).sum() / 613
    if normalisers is not None:
        loss = loss + normalisers.square().sum() * 0.01
    return list(torch.autograd.grad(loss, inputs[:3]))


@pytest.mark.parametrize("with_normalisers", [False, True])
@pytest.mark.parametrize("at_once", [1, 1000, 1 << 20])
def test_the_wide_cross_entropy_equals_pytorchs_in_value_and_gradient(
    at_once: int, with_normalisers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(losses.CHUNK, "cpu", at_once)
    inputs = problem(torch.float32)
    each, normalisers = LinearCrossEntropy.apply(*inputs)
    logits = F.linear(*inputs[:3])
    expected = F.cross_entropy(logits, inputs[3], reduction="none")
    torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normalisers, logits.logsumexp(-1), rtol=1e-5, atol=1e-5)
    ours = gradients(each, normalisers if with_normalisers else None, inputs)
    theirs = gradients(expected, logits.logsumexp(-1) if with_normalisers else None, inputs)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("with_normalisers", [False, True])
def test_in_bfloat16_its_error_is_that_of_pytorch_under_autocast(with_normalisers: bool) -> None:
    inputs = problem(torch.bfloat16)

    def pytorch(precise: bool) -> list[Tensor]:
        taken = [inputs[0].float(), *inputs[1:3]]
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            logits = F.linear(*taken).float()
        each = F.cross_entropy(logits, inputs[3], reduction="none")
        found = gradients(each, logits.logsumexp(-1) if with_normalisers else None, inputs)
        return [each.detach(), *found]

    each, normalisers = LinearCrossEntropy.apply(*inputs)
    ours = [each.detach(), *gradients(each, normalisers if with_normalisers else None, inputs)]
    assert [one.dtype for one in ours] == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    for own, usual, exact in zip(ours, pytorch(precise=False), pytorch(precise=True), strict=True):
        error, allowed = ((one.float() - exact).norm() / exact.norm() for one in (own, usual))
        assert error <= 1.2 * allowed + 1e-3
        # Rounding has no direction: the gradient is neither longer nor shorter on the whole.
        assert (own.float() * exact).sum() / exact.square().sum() == pytest.approx(1.0, abs=2e-3)


def test_without_targets_it_still_reaches_every_weight() -> None:
    inputs = problem(torch.float32, targets=0)
    each, normalisers = LinearCrossEntropy.apply(*inputs)
    assert each.shape == normalisers.shape == (0,)
    assert all(not gradient.any() for gradient in gradients(each, normalisers, inputs))


def test_a_target_that_is_as_good_as_impossible_costs_its_full_logarithm() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[1e4], [0.0]])
    each, _ = LinearCrossEntropy.apply(hidden, weight, torch.zeros(2), torch.tensor([1]))
    assert each.item() == 1e4
