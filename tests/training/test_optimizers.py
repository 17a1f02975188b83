import math

import pytest
import torch
from torch import nn

from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.training.optimizers import AdamWConfig, BertAdam, BertAdamConfig, build_optimizer
from seqbert.training.schedules import LinearConfig


def first_update(config: AdamWConfig | BertAdamConfig, learning_rate: float, weight: float = 2.0) -> float:
    scalar = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
    optimizer = build_optimizer(config, [("scalar", scalar)], learning_rate)
    scalar.grad = torch.tensor(1.0, dtype=torch.float64)
    optimizer.step()
    return weight - scalar.item()


def test_row71_the_first_update_of_a_scalar_with_gradient_1_is_the_learning_rate() -> None:
    assert first_update(AdamWConfig(weight_decay=0.0), 0.01) == pytest.approx(0.01, rel=1e-5)


def test_row71_without_bias_correction_the_first_update_is_three_times_as_large() -> None:
    """(1 - b1) m over the root of (1 - b2) v, where BERT's b1 is 0.9 and its b2 is 0.999."""
    assert first_update(BertAdamConfig(), 0.01) == pytest.approx(0.01 * 0.1 / math.sqrt(0.001), rel=1e-4)


def test_bert_adam_follows_its_formula_over_several_steps() -> None:
    weight, mean, square, rate = 2.0, 0.0, 0.0, 0.01
    parameter = nn.Parameter(torch.full((1, 1), weight, dtype=torch.float64))
    optimizer = build_optimizer(BertAdamConfig(), [("weight", parameter)], rate)
    for gradient in (1.0, -0.5, 3.0, 0.0):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight -= rate * (mean / (math.sqrt(square) + 1e-6) + 0.01 * weight)
        parameter.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        optimizer.step()
        assert parameter.item() == pytest.approx(weight, rel=1e-12)


def test_bert_adam_leaves_what_has_no_gradient() -> None:
    parameter = nn.Parameter(torch.ones(2, 2))
    optimizer = BertAdam([{"params": [parameter]}], lr=0.1, weight_decay=0.1)
    optimizer.step()
    assert torch.equal(parameter, torch.ones(2, 2)) and not optimizer.state


@pytest.mark.parametrize("config", [AdamWConfig(weight_decay=0.1), BertAdamConfig(weight_decay=0.1)])
def test_matrices_decay_and_vectors_do_not(config) -> None:
    module = nn.Linear(2, 2)
    optimizer = build_optimizer(config, module.named_parameters(), 0.01)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay == {id(module.weight): 0.1, id(module.bias): 0.0}


def model(layers: int = 3) -> Model:
    model = Model(EncoderConfig(16, layers, 2, 24), {"x": 10}, {"x": {"classification": 2}})
    model.initialise(0)
    return model


def test_each_block_learns_slower_than_the_one_above_and_the_embeddings_slowest() -> None:
    """Factors of ELECTRA (Clark et al. 2020, appendix A.2): one step of decay a block, from the heads down."""
    tree = model(layers=3)
    optimizer = build_optimizer(AdamWConfig(), tree.named_parameters(), 0.01, layer_decay=0.5, layers=3)
    names = {parameter: name for name, parameter in tree.named_parameters()}
    scales: dict[str, set[float]] = {}
    for group in optimizer.param_groups:
        assert group["lr"] == 0.01 * group["lr_scale"]
        for parameter in group["params"]:
            parts = names[parameter].split(".")
            part = ".".join(parts[: 3 if parts[1] == "blocks" else 2 if parts[0] == "encoder" else 1])
            scales.setdefault(part, set()).add(group["lr_scale"])
    assert scales == {
        "heads": {1.0},
        "encoder.blocks.2": {0.5},
        "encoder.blocks.1": {0.25},
        "encoder.blocks.0": {0.125},
        "encoder.embeddings": {0.0625},
    }
    again = build_optimizer(AdamWConfig(), tree.named_parameters(), 0.01, layer_decay=0.5, layers=3)
    for one, two in zip(optimizer.param_groups, again.param_groups, strict=True):
        assert [names[parameter] for parameter in one["params"]] == [names[parameter] for parameter in two["params"]]


def test_without_layer_decay_everything_learns_at_one_rate() -> None:
    optimizer = build_optimizer(AdamWConfig(), model().named_parameters(), 0.01)
    assert {group["lr_scale"] for group in optimizer.param_groups} == {1.0}
    assert len(optimizer.param_groups) == 2


def test_what_is_frozen_is_not_the_optimizers() -> None:
    tree = model()
    tree.encoder.requires_grad_(False)
    optimizer = build_optimizer(AdamWConfig(), tree.named_parameters(), 0.01)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4  # pooler and classifier


@pytest.mark.parametrize("config", [AdamWConfig, BertAdamConfig])
@pytest.mark.parametrize("fields", [{"beta1": 1.0}, {"beta2": -0.1}, {"eps": 0.0}, {"weight_decay": -1.0}])
def test_numbers_that_no_optimizer_can_use_are_refused(config, fields) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        config(**fields)


def test_the_linear_schedule_rises_over_the_warm_up_and_ends_near_0() -> None:
    schedule = LinearConfig(warmup=0.1)
    factors = [schedule.factor(step, 1000) for step in range(1000)]
    assert factors[0] == 0.01 and factors[99] == 1.0
    assert max(factors) == 1.0 and 0 < factors[-1] < 0.002
    assert LinearConfig(warmup=5).factor(4, 1000) == 1.0
