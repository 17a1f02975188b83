import dataclasses

import numpy as np
import pytest
import torch

from seqbert.data.packing import pack, split
from seqbert.errors import ConfigError, DataError
from seqbert.models.config import EncoderConfig
from seqbert.models.encoder import Encoder, EncoderOutput
from seqbert.models.initialisation import sinusoids
from seqbert.models.model import Model


@pytest.fixture
def encoder(small, vocab_size) -> Encoder:
    model = Model(small, {"letters": vocab_size})
    model.initialise(0)
    return model.encoder.eval()


def one_by_one(batch):
    """Each sequence of a batch in a batch of its own."""
    return split(batch, micro_tokens=1)


@torch.no_grad()
def test_row80_a_packed_sequence_gives_what_it_gives_alone(encoder, packed) -> None:
    batch = packed()
    separate = torch.cat([encoder(alone) for alone in one_by_one(batch)])
    torch.testing.assert_close(encoder(batch), separate, rtol=0, atol=1e-5)


def test_row80_packed_gradients_are_the_sum_of_the_separate_ones(encoder, packed) -> None:
    batch = packed()
    encoder(batch).square().sum().backward()
    together = [parameter.grad.clone() for parameter in encoder.parameters()]
    encoder.zero_grad()
    for alone in one_by_one(batch):
        encoder(alone).square().sum().backward()
    for expected, parameter in zip(together, encoder.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_row80_changing_one_sequence_leaves_the_others_bit_for_bit(encoder, packed) -> None:
    batch = packed((7, 7, 9))
    before = encoder(batch)
    changed = dataclasses.replace(batch, ids=batch.ids.clone())
    changed.ids[:7] = (changed.ids[:7] - 4) % 26 + 5
    after = encoder(changed)
    assert torch.equal(after[7:], before[7:])
    assert not torch.isclose(after[:7], before[:7]).all(1).any()


@torch.no_grad()
def test_row73_a_sequence_gives_the_same_whatever_stands_beside_it(encoder, packed) -> None:
    alone = pack("letters", [np.array([5, 6, 7])])
    beside = pack("letters", [alone.ids.numpy(), *[np.full(16, 6)] * 200])
    torch.testing.assert_close(encoder(beside)[:3], encoder(alone), rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_row72_bf16_and_empty_sequences_give_finite_states_and_gradients(
    small, vocab_size, packed, causal: bool
) -> None:
    model = Model(dataclasses.replace(small, causal=causal, dropout=0.1), {"letters": vocab_size})
    model.initialise(0)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.encoder(packed((0, 1, 1, 5, 16)))
    assert hidden.isfinite().all()
    hidden.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@torch.no_grad()
def test_bf16_stays_close_to_full_precision(encoder, packed) -> None:
    batch = packed()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoder(batch)
    torch.testing.assert_close(rounded.float(), encoder(batch), rtol=0, atol=0.05)


def test_row85_one_segment_embedding_serves_both_parts_of_a_pair(small, vocab_size, packed) -> None:
    model = Model(dataclasses.replace(small, type_vocab_size=1), {"letters": vocab_size})
    model.initialise(0)
    batch = packed()
    assert batch.segment_ids.any()
    as_one = dataclasses.replace(batch, segment_ids=torch.zeros_like(batch.segment_ids))
    assert torch.equal(model.encoder(batch), model.encoder(as_one))


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_row103_attention_weights_come_for_each_layer_and_sequence(small, vocab_size, packed, causal: bool) -> None:
    model = Model(dataclasses.replace(small, causal=causal), {"letters": vocab_size})
    model.initialise(0)
    batch = packed()
    output = model.encoder(batch, attention=True)
    assert isinstance(output, EncoderOutput)
    assert len(output.attention) == small.num_hidden_layers
    for weights in output.attention:
        assert [w.shape for w in weights] == [(2, length, length) for length in batch.lengths]
        for w in weights:
            torch.testing.assert_close(w.sum(-1), torch.ones_like(w.sum(-1)))
            assert not causal or not w.triu(1).any()
    torch.testing.assert_close(output.hidden, model.encoder(batch), rtol=0, atol=1e-5)


@torch.no_grad()
def test_layers_begin_with_the_embeddings_and_end_with_the_hidden_states(encoder, packed) -> None:
    batch = packed()
    output = encoder(batch, layers=True)
    assert len(output.layers) == encoder.config.num_hidden_layers + 1
    assert torch.equal(output.layers[0], encoder.embeddings(batch))
    assert torch.equal(output.layers[-1], output.hidden)
    assert torch.equal(output.hidden, encoder(batch))


def test_a_sequence_beyond_the_positions_is_told_with_both_lengths(encoder, packed) -> None:
    with pytest.raises(DataError, match=r'sequence of 17 tokens in a batch of "letters".*has 16 positions'):
        encoder(packed((3, 17)))


def test_an_empty_batch_gives_no_hidden_states_and_zero_gradients(encoder) -> None:
    hidden = encoder(pack("letters", []))
    assert hidden.shape == (0, 32)
    hidden.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in encoder.parameters())


def test_vocabularies_have_words_of_their_own_and_share_positions_and_blocks(small, packed) -> None:
    model = Model(small, {"letters": 31, "digits": 40})
    model.initialise(0)
    model.encoder(packed(vocabulary="digits")).sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {name for name, _ in model.named_parameters() if ".letters." not in name} == touched
    assert "encoder.embeddings.position.weight" in touched


def test_sinusoidal_positions_have_the_deviation_of_the_drawn_ones_and_turn_by_one_angle_a_step(small) -> None:
    waves = sinusoids(64, 32)
    assert abs(waves.square().mean() - 1.0) < 1e-6
    products = waves @ waves.T
    assert torch.allclose(products.diagonal(offset=3), products[0, 3].expand(61), atol=1e-3)
    model = Model(dataclasses.replace(small, position_init="sinusoidal", initializer_range=0.05), {"letters": 31})
    model.initialise(0)
    assert torch.equal(model.encoder.embeddings.position.weight, sinusoids(16, 32) * 0.05)


@pytest.mark.parametrize("name", ["", "a.b", "values", "train"])
def test_a_vocabulary_that_pytorch_cannot_name_is_an_error(small, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a vocabulary"):
        Encoder(small, {name: 5})


@pytest.mark.parametrize("causal", [False, True])
def test_some_rows_are_those_of_the_whole_with_the_same_gradients(causal: bool) -> None:
    model = Model(EncoderConfig(32, 3, 2, 64, dropout=0.0, causal=causal), {"x": 20}, {}).double()
    model.initialise(0)
    batch = pack("x", [np.arange(5) + 1, np.arange(9) + 2, np.arange(9) + 3])
    rows = batch.cu_seqlens[:-1].long()
    found = []
    for hidden in (model(batch)[rows], model(batch, rows)):
        model.zero_grad()
        hidden.square().sum().backward()
        gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        found.append((hidden.detach(), gradients))
    torch.testing.assert_close(found[0], found[1])


def test_recomputed_blocks_give_the_same_gradients_with_dropout_too_and_keep_less(small, vocab_size, packed) -> None:
    model = Model(dataclasses.replace(small, dropout=0.1, num_hidden_layers=6), {"letters": vocab_size}).train()
    model.initialise(0)
    found, kept = [], []
    for model.encoder.recomputes in (False, True):
        sizes: list[int] = []
        model.zero_grad(set_to_none=True)
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: (sizes.append(tensor.nbytes), tensor)[1], lambda tensor: tensor
        ):
            hidden = model.encoder(packed((16,) * 20))
        kept.append(sum(sizes))
        hidden.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert kept[1] < kept[0] / 5
