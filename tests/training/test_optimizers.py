import torch
from torch import nn

from seqbert.training.optimizers import AdamWConfig, build_optimizer
from seqbert.training.schedules import LinearConfig


def test_row71_the_first_update_of_a_scalar_with_gradient_1_is_the_learning_rate() -> None:
    scalar = nn.Parameter(torch.tensor(2.0))
    optimizer = build_optimizer(AdamWConfig(weight_decay=0.0), [("scalar", scalar)], learning_rate=0.01)
    scalar.grad = torch.tensor(1.0)
    optimizer.step()
    assert abs(2.0 - scalar.item() - 0.01) < 1e-6


def test_matrices_decay_and_vectors_do_not() -> None:
    module = nn.Linear(2, 2)
    optimizer = build_optimizer(AdamWConfig(weight_decay=0.1), module.named_parameters(), 0.01)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay == {id(module.weight): 0.1, id(module.bias): 0.0}


def test_the_linear_schedule_rises_over_the_warm_up_and_ends_near_0() -> None:
    schedule = LinearConfig(warmup=0.1)
    factors = [schedule.factor(step, 1000) for step in range(1000)]
    assert factors[0] == 0.01 and factors[99] == 1.0
    assert max(factors) == 1.0 and 0 < factors[-1] < 0.002
    assert LinearConfig(warmup=5).factor(4, 1000) == 1.0
