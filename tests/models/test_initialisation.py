import dataclasses

import numpy as np
import pytest
import torch

from seqbert.data.packing import pack
from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS, EncoderConfig, ModelConfig
from seqbert.models.initialisation import Undrawn, neighbour_of
from seqbert.models.model import Model

ROTARY = dataclasses.replace(PRESETS["modern-mini"], attention_init="neighbours")
LEARNED = dataclasses.replace(
    PRESETS["bert-mini"], attention_init="neighbours", position_init="sinusoidal", dropout=0.0, initializer_range=0.06
)
SHAPES = {
    "rotary": ROTARY,
    "rotary, causal": dataclasses.replace(ROTARY, causal=True),
    "rotary, unnormalised embeddings": dataclasses.replace(ROTARY, embedding_norm=False),
    "learned": LEARNED,
    "learned, no segments": dataclasses.replace(LEARNED, type_vocab_size=0),
    "learned, narrow heads": dataclasses.replace(LEARNED, hidden_size=128, num_attention_heads=4),
}


def first_weights(config: EncoderConfig, seed: int = 0) -> torch.Tensor:
    """Attention weights of the first block over random tokens, ``[heads, length, length]``."""
    model = Model(config, {"letters": 300}, {"letters": ["masked_lm"]})
    model.initialise(seed)
    ids = np.random.default_rng(0).integers(5, 300, 40)
    with torch.no_grad():
        (weights,) = model.eval().encoder(pack("letters", [ids]), attention=True).attention[0]
    return weights


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_each_head_of_the_first_block_looks_at_its_neighbour(shape: str, seed: int) -> None:
    config = SHAPES[shape]
    weights = first_weights(config, seed)
    for head, looks in enumerate(weights):
        offset = neighbour_of(head, config.causal)
        mean = {d: float(looks.diagonal(d)[8:24].mean()) for d in range(-8, 9)}
        assert max(mean, key=mean.__getitem__) == offset
        assert mean[offset] > 0.35


def test_nothing_else_than_the_words_and_the_first_queries_and_keys_begins_otherwise() -> None:
    def drawn(kind):
        model = Model(dataclasses.replace(ROTARY, attention_init=kind), {"a": 50, "b": 40}, {"a": ["masked_lm"]})
        model.initialise(3)
        return model.state_dict()

    normal, neighbours = drawn("normal"), drawn("neighbours")
    assert [name for name, weight in normal.items() if not torch.equal(weight, neighbours[name])] == [
        "encoder.embeddings.word.a.weight",
        "encoder.embeddings.word.b.weight",
        "encoder.blocks.0.attention.query.weight",
        "encoder.blocks.0.attention.key.weight",
    ]


def test_words_begin_as_they_do_otherwise_but_for_one_direction() -> None:
    """Two words differ as before, so the direction says nothing about any of them."""
    words = {}
    for kind in ("normal", "neighbours"):
        model = Model(dataclasses.replace(ROTARY, attention_init=kind), {"a": 50})
        model.initialise(0)
        words[kind] = model.word_embedding("a").weight.detach()
    torch.testing.assert_close(words["neighbours"] - words["neighbours"][:1], words["normal"] - words["normal"][:1])


def test_drawing_the_first_block_anew_makes_it_look_at_neighbours_again() -> None:
    model = Model(ROTARY, {"a": 50})
    model.initialise(0)
    before = model.encoder.blocks[0].attention.key.weight.clone()
    model.initialise(0, within=["encoder.blocks.0"])
    assert torch.equal(model.encoder.blocks[0].attention.key.weight, before)


def test_positions_that_do_not_begin_as_sinusoids_cannot_tell_neighbours() -> None:
    with pytest.raises(ConfigError, match="position_init to sinusoidal"):
        ModelConfig("bert-mini", attention_init="neighbours")


def test_a_masked_lm_may_begin_by_predicting_each_token_as_often_as_it_occurs() -> None:
    config = dataclasses.replace(PRESETS["modern-mini"], bias_init="unigram", num_hidden_layers=1)
    model = Model(config, {"a": 4, "b": 3}, {"a": ["masked_lm"], "b": ["masked_lm"]})
    frequency = np.array([0.5, 0.25, 0.2, 0.05])
    model.initialise(0, frequencies={"a": frequency})
    nothing = torch.zeros(1, config.hidden_size)
    chances = [model.heads[name]["masked_lm"](nothing).softmax(-1)[0].tolist() for name in "ab"]
    assert chances == [pytest.approx(frequency.tolist()), pytest.approx([1 / 3] * 3)]


def test_a_model_that_is_made_without_drawing_begins_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(PRESETS["bert-mini"], num_hidden_layers=1)
    heads = {"text": {"masked_lm": 50, "classification": 3}}
    drawn = Model(config, {"text": 50}, heads)
    drawn.initialise(7)
    monkeypatch.setattr(torch.Tensor, "normal_", lambda *_, **__: pytest.fail("a weight was drawn"))
    with Undrawn():
        other = Model(config, {"text": 50}, heads)
    monkeypatch.undo()
    other.initialise(7)
    for name, weight in drawn.state_dict().items():
        assert torch.equal(other.state_dict()[name], weight), name
