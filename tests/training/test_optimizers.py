import copy
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from seqbert.errors import ConfigError
from seqbert.models.adaptation import LoRAConfig, add_lora, freeze
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.training import optimizers
from seqbert.training.checkpoint import Checkpoints, Progress, load_checkpoint
from seqbert.training.optimizers import (
    AdamWConfig,
    BertAdam,
    BertAdamConfig,
    Joined,
    Muon,
    MuonConfig,
    build_optimizer,
    orthogonal,
)


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


@pytest.mark.parametrize("config", [AdamWConfig, BertAdamConfig, MuonConfig])
@pytest.mark.parametrize("fields", [{"beta1": 1.0}, {"beta2": -0.1}, {"eps": 0.0}, {"weight_decay": -1.0}])
def test_numbers_that_no_optimizer_can_use_are_refused(config, fields) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        config(**fields)


@pytest.mark.parametrize("fields", [{"momentum": 1.0}, {"ns_steps": 0}, {"ns_steps": 100}, {"adamw_rate": 0.0}])
def test_numbers_that_muon_cannot_use_are_refused(fields) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        MuonConfig(**fields)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust_lr_fn", ["match_rms_adamw", "original"])
def test_muon_updates_many_matrices_as_that_of_pytorch_updates_each(
    nesterov: bool, adjust_lr_fn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "multiplies_bf16", lambda device: True)  # theirs is in bf16 on every processor
    options = {"lr": 0.02, "momentum": 0.9, "nesterov": nesterov, "ns_steps": 4, "adjust_lr_fn": adjust_lr_fn}
    draw = torch.Generator().manual_seed(0)
    shapes = [(24, 24), (24, 24), (48, 24), (24, 48), (24, 24)]
    weights = [torch.randn(shape, generator=draw) for shape in shapes]
    ours, theirs = ([nn.Parameter(weight.clone()) for weight in weights] for _ in range(2))
    own = Muon([{"params": ours}], weight_decay=0.1, **options)
    peer = torch.optim.Muon(theirs, weight_decay=0.1, **options)
    for _ in range(3):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=draw)
            two.grad = one.grad.clone()
        own.step()
        peer.step()
    for one, two, weight in zip(ours, theirs, weights, strict=True):
        assert (one - two).abs().max() <= 2**-8 * (two - weight).abs().max()  # bf16's rounding of the update


@pytest.mark.parametrize("has_bf16", [True, False])
def test_muon_iterates_in_bf16_where_the_device_multiplies_in_it_and_else_in_fp32(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(optimizers, "multiplies_bf16", lambda device: has_bf16)
    monkeypatch.setattr(optimizers, "orthogonal", lambda one, steps: seen.append(one.dtype) or orthogonal(one, steps))
    weight = nn.Parameter(torch.ones(4, 4))
    weight.grad = torch.eye(4)
    Muon([{"params": [weight]}], lr=0.01).step()
    assert seen == [torch.bfloat16 if has_bf16 else torch.float32]


def test_an_orthogonal_matrix_has_singular_values_near_1() -> None:
    """Jordan et al. 2024: five steps take them into about 0.7 to 1.2, unless they are very small."""
    matrices = torch.randn(3, 16, 64, generator=torch.Generator().manual_seed(0))
    for found in (orthogonal(matrices.bfloat16(), 5), orthogonal(matrices.mT.bfloat16(), 5), orthogonal(matrices, 5)):
        values = torch.linalg.svdvals(found.float())
        assert values.min() > 0.6 and values.max() < 1.3


def test_a_rate_that_fits_adamw_makes_an_update_of_a_matrix_as_long_as_adamws() -> None:
    """Liu et al. 2025, section 2.2: 0.2 of the rate for each weight, whatever the shape of the matrix."""
    for shape in [(64, 64), (256, 64), (64, 256)]:
        weight = nn.Parameter(torch.zeros(shape))
        weight.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        Muon([{"params": [weight]}], lr=0.01).step()
        assert weight.square().mean().sqrt().item() == pytest.approx(0.2 * 0.01, rel=0.2)


def test_muon_updates_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    tree = model(layers=2)
    optimizer = build_optimizer(MuonConfig(adamw_rate=0.5, weight_decay=0.1), tree.named_parameters(), 0.01)
    names = {parameter: name for name, parameter in tree.named_parameters()}
    by_muon, rates, decays = set(), {}, {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[parameter]
            rates[name], decays[name] = group["lr"], group["weight_decay"]
            if "ns_steps" in group:
                by_muon.add(name)
    matrices = ("attention.query", "attention.key", "attention.value", "attention.output")
    matrices += ("feed_forward.intermediate", "feed_forward.output")
    assert by_muon == {f"encoder.blocks.{block}.{matrix}.weight" for block in range(2) for matrix in matrices}
    assert rates.keys() == set(names.values())
    assert all(rate == (0.01 if name in by_muon else 0.005) for name, rate in rates.items())
    assert all(decay == (0.1 if names_matrix(tree, name) else 0.0) for name, decay in decays.items())


def names_matrix(tree: nn.Module, name: str) -> bool:
    return tree.get_parameter(name).ndim > 1


def test_muon_follows_layer_decay_and_leaves_what_is_frozen() -> None:
    tree = model(layers=3)
    freeze(tree, embeddings=True, layers=1)
    optimizer = build_optimizer(MuonConfig(), tree.named_parameters(), 0.01, layer_decay=0.5, layers=3)
    names = {parameter: name for name, parameter in tree.named_parameters()}
    scales = {
        names[parameter].split(".")[2]: group["lr_scale"]
        for group in optimizer.param_groups
        for parameter in group["params"]
        if names[parameter].startswith("encoder.")
    }
    assert scales == {"1": 0.25, "2": 0.5}


def train(tree: Model, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    """Steps on gradients of their own."""
    for seed in seeds:
        draw = torch.Generator().manual_seed(seed)
        for parameter in tree.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw) if parameter.requires_grad else None
        optimizer.step()


@pytest.mark.parametrize("lora", [False, True])
def test_row65_muon_goes_on_from_a_checkpoint_with_the_same_bytes(lora: bool, tmp_path: Path) -> None:
    def start() -> tuple[Model, torch.optim.Optimizer]:
        tree = model()
        if lora:
            add_lora(tree, LoRAConfig(rank=2), seed=0)
        return tree, build_optimizer(MuonConfig(), tree.named_parameters(), 0.01, layer_decay=0.9, layers=3)

    tree, optimizer = start()
    train(tree, optimizer, range(2))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(tree, optimizer, Progress(2))
    checkpoints.wait()
    train(tree, optimizer, range(2, 4))
    other, other_optimizer = start()
    load_checkpoint(tmp_path / "step-00000002", other, other_optimizer)
    train(other, other_optimizer, range(2, 4))
    for one, two in zip(tree.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("before", [AdamWConfig(), BertAdamConfig(), MuonConfig()], ids=lambda config: config.name)
@pytest.mark.parametrize("after", [AdamWConfig(), BertAdamConfig(), MuonConfig()], ids=lambda config: config.name)
def test_a_run_goes_on_with_another_optimizer_which_begins_anew(before, after, tmp_path: Path) -> None:
    tree = model()
    optimizer = build_optimizer(before, tree.named_parameters(), 0.01)
    train(tree, optimizer, range(2))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(tree, optimizer, Progress(2))
    checkpoints.wait()
    said: list[str] = []
    other = model()
    other_optimizer = build_optimizer(after, other.named_parameters(), 0.01)
    load_checkpoint(tmp_path / "step-00000002", other, other_optimizer, said.append)
    train(other, other_optimizer, range(2, 3))
    assert said == (
        [] if before == after else ["The optimizer is another one: what it keeps of the weights begins anew."]
    )


def test_optimizers_that_are_joined_share_a_state_that_is_saved_and_loaded_as_one() -> None:
    tree = model()
    optimizer = build_optimizer(MuonConfig(), tree.named_parameters(), 0.01)
    assert isinstance(optimizer, Joined)
    train(tree, optimizer, range(1))
    assert set(optimizer.state) == set(tree.parameters())
    twin = model()
    twin.load_state_dict(tree.state_dict())
    other = build_optimizer(MuonConfig(), twin.named_parameters(), 0.01)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one in (tree, optimizer), (twin, other):
        train(*one, range(1, 2))
    for one, two in zip(tree.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, two)
