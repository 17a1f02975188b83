import pytest
import torch

from seqbert.models.dropout import Dropout, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_zeroed_and_the_mean_is_kept(share, dtype):
    torch.manual_seed(0)
    drawn = mask(torch.Size([1000, 401]), share, dtype).float()
    count = drawn.numel()
    deviation = (share * (1 - share) / count) ** 0.5
    assert abs(float((drawn == 0).float().mean()) - share) < 5 * deviation
    assert sorted(set(drawn.unique().tolist())) == pytest.approx([0.0, 1 / (1 - share)], rel=0.01)


def test_neighbours_are_drawn_independently():
    """Four values come from one random word."""
    torch.manual_seed(1)
    kept = (mask(torch.Size([400_000]), 0.5, torch.float32) > 0).double().view(-1, 4)
    correlations = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlations.abs().max() < 0.015  # five deviations of 1 / sqrt(100,000)


def test_the_same_seed_gives_the_same_mask_and_evaluation_none():
    layer, values = Dropout(0.3), torch.ones(50, 7)
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(layer(values))
    assert torch.equal(*found) and not torch.equal(found[0], values)
    assert layer.eval()(values) is values


def test_the_gradient_goes_where_values_were_kept():
    values = torch.ones(100, requires_grad=True)
    kept = Dropout(0.4)(values)
    kept.sum().backward()
    assert torch.equal(values.grad, kept.detach())
