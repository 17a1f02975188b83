"""What a config can make of the encoder beside BERT: rotary positions, norms before, gates, no biases, local blocks."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqbert.data.packing import pack
from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS, EncoderConfig, ModelConfig
from seqbert.models.encoder import Encoder, FeedForward, Rotary
from seqbert.models.model import Model


@pytest.fixture(scope="module")
def modern() -> EncoderConfig:
    """ModernBERT's shape, small, with windows that sequences of 16 tokens reach beyond."""
    changes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "attention_window": 3}
    return dataclasses.replace(PRESETS["modern-mini"], **changes)


def model_of(config: EncoderConfig) -> Model:
    model = Model(dataclasses.replace(config, initializer_range=0.2), {"letters": 30}, {"letters": ["masked_lm"]})
    model.initialise(0)
    return model.eval()


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    turn = Rotary(16, 10000.0)(torch.arange(60))
    query, key = torch.randn(1, 2, 16), torch.randn(1, 2, 16)
    scores = torch.einsum("qhd,khd->hqk", turn(query.expand(60, -1, -1)), turn(key.expand(60, -1, -1)))
    for distance in (-5, 0, 7):
        along = scores.diagonal(distance, 1, 2)
        torch.testing.assert_close(along, along[:, :1].expand_as(along), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores[:, 0, 0], (query * key).sum(-1)[0])


def test_rotary_wavelengths_are_those_of_the_paper() -> None:
    turn = Rotary(8, 10000.0)(torch.tensor([1]))
    angles = [10000 ** (-2 * i / 8) for i in range(4)]  # Su et al. 2021, section 3.2.2
    torch.testing.assert_close(turn.cos.flatten(), torch.tensor(angles).cos())


def test_a_gate_multiplies_the_activation_of_the_first_half(modern) -> None:
    part = FeedForward(modern)
    hidden = torch.randn(5, 32)
    inner, gate = part.intermediate(hidden)[:, :48], part.intermediate(hidden)[:, 48:]
    torch.testing.assert_close(part(hidden), part.output(F.gelu(inner) * gate))


def test_every_third_block_sees_everything_and_the_others_their_neighbours(modern) -> None:
    """A token beyond the reach of the local blocks changes what the global ones see, and nothing else."""
    batch = pack("letters", [np.arange(5, 21)])
    encoder = model_of(modern).encoder
    with torch.no_grad():
        weights = encoder(batch, attention=True).attention
    reach = [int((row[0].sum(0) > 0).nonzero().diff(dim=1).abs().max()) for row in weights]
    assert reach == [15, 3, 3, 15]


def test_only_the_decoder_has_a_bias_where_biases_are_off(modern) -> None:
    model = Model(modern, {"letters": 30}, {"letters": ["masked_lm"]})
    assert [name for name, _ in model.named_parameters() if "bias" in name] == ["heads.letters.masked_lm.bias"]


def test_there_are_no_embeddings_of_positions_and_segments(modern) -> None:
    names = [name for name, _ in Encoder(modern, {"letters": 30}).embeddings.named_parameters()]
    assert names == ["word.letters.weight", "norm.letters.weight"]


def test_the_first_block_takes_normalised_embeddings_as_they_are(modern) -> None:
    def norms(config):
        return [type(block.attention_norm).__name__ for block in Encoder(config, {"letters": 30}).blocks]

    assert norms(modern) == ["Identity", "LayerNorm", "LayerNorm", "LayerNorm"]
    assert norms(dataclasses.replace(modern, embedding_norm=False)) == ["LayerNorm"] * 4


@pytest.mark.parametrize("attention", [False, True])
def test_the_last_layer_is_the_normalised_one(modern, attention: bool) -> None:
    batch = pack("letters", [np.arange(5, 12), np.arange(6, 20)])
    with torch.no_grad():
        output = model_of(modern).encoder(batch, layers=True, attention=attention)
    assert len(output.layers) == 5
    assert torch.equal(output.layers[-1], output.hidden)
    torch.testing.assert_close(output.hidden.mean(-1), torch.zeros(21), rtol=0, atol=1e-5)


def test_a_packed_sequence_gives_what_it_gives_alone(modern) -> None:
    encoder = model_of(modern).encoder
    sequences = [np.arange(5, 5 + length) for length in (4, 9, 20)]
    with torch.no_grad():
        together = encoder(pack("letters", sequences))
        alone = torch.cat([encoder(pack("letters", [sequence])) for sequence in sequences])
    torch.testing.assert_close(together, alone)


def test_some_rows_are_those_of_the_whole_with_the_same_gradients(modern) -> None:
    model = model_of(modern)
    batch, rows = pack("letters", [np.arange(5, 12), np.arange(6, 20)]), torch.tensor([0, 3, 8, 20])
    gradients = []
    for hidden in (model(batch)[rows], model(batch, rows)):
        hidden.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.encoder.parameters()])
        model.zero_grad()
    torch.testing.assert_close(*gradients)


def test_the_published_modern_sizes() -> None:
    """Warner et al. 2024, table 4."""
    base, large = PRESETS["modern-base"], PRESETS["modern-large"]
    assert (base.num_hidden_layers, base.hidden_size, base.intermediate_size, base.num_attention_heads) == (
        22,
        768,
        1152,
        12,
    )
    assert (large.num_hidden_layers, large.hidden_size, large.intermediate_size, large.num_attention_heads) == (
        28,
        1024,
        2624,
        16,
    )
    assert [base.window_of(block) for block in range(4)] == [None, 64, 64, None]
    assert [base.theta_of(block) for block in range(4)] == [160000.0, 10000.0, 10000.0, 160000.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"position": "rotated"},
        {"attention_window": 0},
        {"rope_theta": 0.0},
        {"gated": 1},
        {"global_attention_every": 0},
        {"hidden_size": 9, "num_attention_heads": 3},
    ],
)
def test_a_value_that_cannot_be_used_is_named(changes: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        ModelConfig(**{"preset": "modern-tiny"} | changes)
