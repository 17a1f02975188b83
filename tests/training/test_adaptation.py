import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from seqbert.data.packing import PackedBatch, pack
from seqbert.errors import ConfigError
from seqbert.models.adaptation import LORA_TARGETS, LoRAConfig, add_lora, freeze, merged, reinitialise_top
from seqbert.models.config import EncoderConfig
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model
from seqbert.training.checkpoint import Checkpoints, Progress, load_checkpoint
from seqbert.training.optimizers import AdamWConfig, BertAdamConfig, build_optimizer

SHAPE = EncoderConfig(16, 3, 2, 24, max_position_embeddings=16, dropout=0.0)


def fresh(seed: int = 0) -> Model:
    model = Model(SHAPE, {"x": 31}, {"x": {"classification": 3}})
    model.initialise(seed)
    return model


def batch() -> PackedBatch:
    generator = np.random.default_rng(0)
    return pack("x", [generator.integers(5, 31, length) for length in (3, 7, 7, 12)])


def logits(model: Model) -> torch.Tensor:
    sequences = batch()
    return model.heads["x"]["classification"](model(sequences)[sequences.cu_seqlens[:-1].long()])


def train(model: Model, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits(model), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()


def changed(before: Model, after: Model) -> set[str]:
    """Parts of the model of which any weight differs."""
    weights = dict(before.named_parameters())
    names = {name for name, parameter in after.named_parameters() if not torch.equal(parameter, weights[name])}
    return {".".join(name.split(".")[: 3 if ".blocks." in name else 2]) for name in names}


@pytest.mark.parametrize(
    ("embeddings", "layers", "trained"),
    [
        (False, 0, {"encoder.embeddings", "encoder.blocks.0", "encoder.blocks.1", "encoder.blocks.2", "heads.x"}),
        (True, 0, {"encoder.blocks.0", "encoder.blocks.1", "encoder.blocks.2", "heads.x"}),
        (True, 2, {"encoder.blocks.2", "heads.x"}),
        (True, 3, {"heads.x"}),
    ],
)
def test_what_is_frozen_stays_bit_for_bit_and_the_rest_is_trained(embeddings, layers, trained) -> None:
    model = fresh()
    freeze(model, embeddings, layers)
    before = copy.deepcopy(model)
    train(model, build_optimizer(AdamWConfig(), model.named_parameters(), 0.01), steps=2)
    assert changed(before, model) == trained


def test_the_top_blocks_and_the_pooler_are_drawn_anew_and_nothing_else() -> None:
    model = fresh()
    before = copy.deepcopy(model)
    reinitialise_top(model, 2, seed=1)
    assert changed(before, model) == {"encoder.blocks.1", "encoder.blocks.2", "heads.x"}
    head, old = model.heads["x"]["classification"], before.heads["x"]["classification"]
    assert not torch.equal(head.pooler.weight, old.pooler.weight)
    assert torch.equal(head.classifier.weight, old.classifier.weight)
    again = fresh()
    reinitialise_top(again, 2, seed=1)
    assert changed(again, model) == set()
    reinitialise_top(again, 0, seed=2)
    assert changed(again, model) == set()


def test_positions_keep_their_weights_when_the_top_is_drawn_anew() -> None:
    model = Model(EncoderConfig(16, 3, 2, 24, position_init="sinusoidal"), {"x": 31})
    model.initialise(0)
    torch.nn.init.ones_(model.encoder.embeddings.position.weight)
    reinitialise_top(model, 1, seed=0)
    assert (model.encoder.embeddings.position.weight == 1).all()


@pytest.mark.parametrize("layers", [-1, 4])
def test_more_blocks_than_there_are_is_refused(layers) -> None:
    for change in (lambda: freeze(fresh(), False, layers), lambda: reinitialise_top(fresh(), layers, 0)):
        with pytest.raises(ConfigError, match=f"{layers} blocks are to be .* the encoder has 3"):
            change()


def test_lora_begins_at_the_weights_it_is_put_on_and_trains_its_updates_and_the_head_only() -> None:
    model = fresh()
    expected = logits(model)
    add_lora(model, LoRAConfig(rank=2, targets=list(LORA_TARGETS)), seed=0)
    assert torch.equal(logits(model), expected)
    before = copy.deepcopy(model)
    train(model, build_optimizer(AdamWConfig(), model.named_parameters(), 0.01), steps=3)
    weights = dict(before.named_parameters())
    names = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, weights[name])}
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names == trained
    assert all(name.startswith("heads.") or name.endswith((".0.up", ".0.down")) for name in names)
    assert not torch.equal(logits(model), expected)


def test_lora_has_as_many_parameters_as_its_rank_says() -> None:
    """Hu et al. 2022, section 4.2: 2 x layers x targets x width x rank on square weights."""
    model = fresh()
    add_lora(model, LoRAConfig(rank=4, targets=["query", "value"]), seed=0)
    trained = sum(p.numel() for p in model.encoder.parameters() if p.requires_grad)
    assert trained == 2 * SHAPE.num_hidden_layers * 2 * SHAPE.hidden_size * 4


def test_the_update_is_alpha_over_rank_times_up_times_down() -> None:
    model = fresh()
    weight = model.encoder.blocks[1].attention.query.weight.detach().clone()
    add_lora(model, LoRAConfig(rank=2, alpha=6.0, targets=["query"]), seed=0)
    query = model.encoder.blocks[1].attention.query
    update = query.parametrizations.weight[0]
    torch.nn.init.normal_(update.up)
    torch.testing.assert_close(query.weight, weight + 3.0 * update.up @ update.down)


def test_a_merged_model_is_an_ordinary_one_with_equal_logits_and_the_other_stays() -> None:
    model = fresh()
    add_lora(model, LoRAConfig(rank=2, targets=["query", "intermediate"]), seed=0)
    train(model.train(), build_optimizer(AdamWConfig(), model.named_parameters(), 0.01), steps=3)
    names = [name for name, _ in model.named_parameters()]
    twin = merged(model)
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in fresh().named_parameters()]
    assert twin.training
    torch.testing.assert_close(logits(twin), logits(model))
    assert [name for name, _ in model.named_parameters()] == names
    plain = fresh()
    assert merged(plain) is plain


@pytest.mark.parametrize("config", [AdamWConfig(), BertAdamConfig()], ids=lambda config: config.name)
def test_a_run_with_lora_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(config, tmp_path: Path) -> None:
    def start() -> tuple[Model, torch.optim.Optimizer]:
        model = fresh()
        add_lora(model, LoRAConfig(rank=2), seed=0)
        return model, build_optimizer(config, model.named_parameters(), 0.01, layer_decay=0.9, layers=3)

    model, optimizer = start()
    train(model, optimizer, 2)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(model, optimizer, Progress(2))
    train(model, optimizer, 2)
    checkpoints.wait()
    other, other_optimizer = start()
    assert load_checkpoint(tmp_path / "step-00000002", other, other_optimizer).step == 2
    train(other, other_optimizer, 2)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_lora_draws_the_same_for_the_same_seed() -> None:
    updates = []
    for seed in (0, 0, 1):
        model = fresh()
        add_lora(model, LoRAConfig(rank=2), seed)
        updates.append(model.encoder.blocks[0].attention.query.parametrizations.weight[0].down)
    assert torch.equal(updates[0], updates[1]) and not torch.equal(updates[0], updates[2])


def test_lora_trains_in_half_precision() -> None:
    model = fresh()
    add_lora(model, LoRAConfig(rank=2), seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        logits(model).float().square().sum().backward()
    update = model.encoder.blocks[0].attention.query.parametrizations.weight[0]
    assert update.up.grad.dtype == torch.float32 and update.up.grad.any()


def test_features_go_with_nothing_that_would_have_to_train_the_encoder() -> None:
    model = Model(SHAPE, {"x": 31}, {"x": {"tagging": 3}}, FeaturesConfig("last", 8, 1))
    with pytest.raises(ConfigError, match="lora updates the encoder, and features keep it"):
        add_lora(model, LoRAConfig(), seed=0)
    with pytest.raises(ConfigError, match="reinitialise draws blocks anew, and features never train them"):
        reinitialise_top(model, 1, seed=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"alpha": 0.0}, r"alpha is 0\.0"),
        ({"targets": []}, "targets is empty.*query"),
        ({"targets": ["querry"]}, 'targets has "querry".*Did you mean "query"'),
        ({"targets": ["key", "key"]}, "names a weight twice"),
    ],
)
def test_a_lora_that_cannot_be_is_refused(fields, message) -> None:
    with pytest.raises(ConfigError, match=message):
        LoRAConfig(**fields)
