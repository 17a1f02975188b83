"""Token dropout, the precision of rotary positions, and the heads of tasks on a modern encoder."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqbert.data.packing import PackedBatch, pack
from seqbert.errors import ConfigError
from seqbert.models.adaptation import reinitialise_top
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.models.embeddings import Embeddings
from seqbert.models.encoder import Rotary
from seqbert.models.model import Model

MASK = 4

ESM = EncoderConfig(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    type_vocab_size=0,
    dropout=0.0,
    position="rotary",
    norm_first=True,
    embedding_norm=False,
    token_dropout=True,
)


def batch_of(*sequences: list[int], vocabulary: str = "x") -> PackedBatch:
    return pack(vocabulary, [np.array(sequence) for sequence in sequences])


def test_masks_are_zero_and_their_sequence_is_scaled_as_if_12_percent_were_hidden() -> None:
    """As in ESM-2 as released: (1 - 0.15 * 0.8) over the share that is not hidden."""
    embeddings = Embeddings(ESM, {"x": 20}, {"x": MASK})
    batch = batch_of([5, MASK, 6, MASK], [7], [8, 9, MASK])
    words = embeddings.word["x"].weight[batch.ids]
    factors = torch.tensor([2 / 4] * 4 + [1.0] + [2 / 3] * 3)
    expected = torch.where(batch.ids[:, None] == MASK, 0.0, words * 0.88 / factors[:, None])
    torch.testing.assert_close(embeddings(batch), expected)


def test_a_sequence_that_is_hidden_whole_is_zero() -> None:
    embedded = Embeddings(ESM, {"x": 20}, {"x": MASK})(batch_of([MASK, MASK], [5]))
    assert not embedded[:2].any()
    assert embedded[2].isfinite().all()


def test_each_vocabulary_has_a_mask_of_its_own() -> None:
    embeddings = Embeddings(ESM, {"x": 20, "y": 20}, {"x": MASK, "y": 7})
    assert not embeddings(batch_of([5, MASK, 7]))[1].any()
    of_y = embeddings(batch_of([5, MASK, 7], vocabulary="y"))
    assert of_y[1].any() and not of_y[2].any()


def test_a_vocabulary_without_a_mask_is_named() -> None:
    with pytest.raises(ConfigError, match='not known which token of "y"'):
        Model(ESM, {"x": 20, "y": 20}, mask_ids={"x": MASK})
    Model(dataclasses.replace(ESM, token_dropout=False), {"x": 20})


def test_the_frequencies_of_positions_stay_exact_where_the_weights_lose_precision() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), Rotary(16, 10000.0))
    before = module[1].frequency.clone()
    module.to(torch.bfloat16)
    assert module[0].weight.dtype == torch.bfloat16
    assert torch.equal(module[1].frequency, before)


def test_frequencies_are_rounded_where_they_were_trained_so() -> None:
    exact, rounded = Rotary(16, 10000.0).frequency, Rotary(16, 10000.0, torch.float16).frequency
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, exact.half().float()) and not torch.equal(rounded, exact)


@pytest.mark.parametrize("kind", ["classification", "tagging", "span", "choice"])
def test_a_task_on_modernbert_has_dense_layer_activation_and_norm(kind: str) -> None:
    config = dataclasses.replace(PRESETS["modern-mini"], hidden_size=8, num_attention_heads=2)
    outputs = {"span": 2, "choice": 1}.get(kind, 3)
    model = Model(config, {"x": 20}, {"x": {kind: outputs}}).eval()
    model.initialise(0)
    head = model.heads["x"][kind]
    assert {name for name, _ in head.named_parameters()} == {
        "dense.weight",
        "norm.weight",
        "classifier.weight",
        "classifier.bias",
    }
    hidden = torch.randn(5, 8)
    normed = F.layer_norm(F.gelu(hidden @ head.dense.weight.T), (8,), head.norm.weight, eps=config.layer_norm_eps)
    expected = normed @ head.classifier.weight.T + head.classifier.bias
    torch.testing.assert_close(head(hidden), expected)


def test_drawing_the_top_anew_draws_the_dense_layer_of_a_task_too() -> None:
    config = dataclasses.replace(PRESETS["modern-mini"], hidden_size=8, num_attention_heads=2)
    model = Model(config, {"x": 20}, {"x": {"tagging": 3}})
    model.initialise(0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    reinitialise_top(model, 1, seed=1)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert "heads.x.tagging.dense.weight" in changed
    assert not any("classifier" in name or ".blocks.0." in name for name in changed)
