import pytest
import torch

from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.lstm import Features, FeaturesConfig, WeightedSum
from seqbert.models.model import Model

LAYERS = (
    "last",
    "second_to_last",
    "sum_last_four",
    "concat_last_four",
    "weighted_sum_last_four",
    "weighted_sum",
    "embeddings",
)


@pytest.fixture
def four() -> EncoderConfig:
    """Four blocks, with dropout."""
    return EncoderConfig(16, 4, 2, 24, max_position_embeddings=16, dropout=0.5)


def model_of(config: EncoderConfig, layers: str, lstm_layers: int = 2) -> Model:
    features = FeaturesConfig(layers, lstm_hidden=6, lstm_layers=lstm_layers)
    model = Model(config, {"letters": 31}, {"letters": {"classification": 3, "tagging": 5}}, features)
    model.initialise(0)
    return model


@torch.no_grad()
@pytest.mark.parametrize("layers", LAYERS)
def test_features_are_made_of_the_layers_they_are_named_after(four, packed, layers) -> None:
    model = model_of(four, layers, lstm_layers=0)
    batch = packed()
    all_layers = model.encoder(batch, layers=True).layers
    expected = {
        "last": all_layers[4],
        "second_to_last": all_layers[3],
        "sum_last_four": all_layers[1] + all_layers[2] + all_layers[3] + all_layers[4],
        "concat_last_four": torch.cat(all_layers[1:], dim=1),
        "weighted_sum": sum(all_layers[1:]) / 4,  # the weights begin alike
        "weighted_sum_last_four": sum(all_layers[1:]) / 4,
        "embeddings": all_layers[0],
    }[layers]
    assert model.width == expected.shape[1]
    torch.testing.assert_close(model(batch), expected)


@torch.no_grad()
def test_the_weighted_last_four_are_not_all_blocks() -> None:
    layers = [torch.full((1, 16), float(number)) for number in range(7)]
    features = Features(FeaturesConfig("weighted_sum_last_four", lstm_layers=0), EncoderConfig(16, 6, 2, 24))
    assert features(layers, [1])[0, 0].item() == pytest.approx((3 + 4 + 5 + 6) / 4)


def test_a_weighted_sum_is_elmos_equation_1() -> None:
    module = WeightedSum(2)
    with torch.no_grad():
        module.weights.copy_(torch.tensor([0.0, 3.0]).log().nan_to_num(neginf=-1e9))
        module.scale.fill_(10)
    assert module([torch.tensor([[5.0]]), torch.tensor([[7.0]])]).item() == pytest.approx(70)
    with torch.no_grad():
        module.weights.copy_(torch.tensor([1.0, 3.0]).log())
    assert module([torch.tensor([[5.0]]), torch.tensor([[7.0]])]).item() == pytest.approx(10 * (5 / 4 + 3 * 7 / 4))


@torch.no_grad()
@pytest.mark.parametrize("layers", LAYERS)
def test_a_sequences_features_do_not_depend_on_its_neighbours(four, packed, layers) -> None:
    model = model_of(four, layers)
    together = model(packed((3, 9, 1, 9, 5)))
    for number, alone in enumerate(together.split([3, 9, 1, 9, 5])):
        batch = packed((3, 9, 1, 9, 5))
        start, stop = batch.cu_seqlens[number : number + 2].tolist()
        single = packed((stop - start,))
        single.ids.copy_(batch.ids[start:stop])
        single.segment_ids.copy_(batch.segment_ids[start:stop])
        torch.testing.assert_close(alone, model(single), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_lstm_reads_each_sequence_in_both_directions_as_pytorchs_does_alone(four, packed) -> None:
    model = model_of(four, "last")
    lengths = (3, 9, 1)
    batch = packed(lengths)
    hidden = model.encoder(batch)
    expected = [model.features.lstm(sequence)[0] for sequence in hidden.split(list(lengths))]
    torch.testing.assert_close(model(batch), torch.cat(expected), rtol=1e-5, atol=1e-6)


def test_the_encoder_under_features_has_no_dropout_and_no_gradients(four, packed) -> None:
    model = model_of(four, "concat_last_four").train()
    assert not any(module.training for module in model.encoder.modules())
    assert model.features.training and model.heads.training
    batch = packed()
    assert torch.equal(model(batch), model(batch))
    hidden = model(batch)
    heads = model.heads["letters"]
    (heads["tagging"](hidden).square().sum() + heads["classification"](hidden[:2]).square().sum()).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in model.named_parameters() if name.startswith("encoder.")}
    assert not any(parameter.requires_grad for parameter in model.encoder.parameters())


def test_without_features_a_model_gives_its_last_hidden_states(four, packed) -> None:
    model = Model(four, {"letters": 31}).eval()
    assert torch.equal(model(packed()), model.encoder(packed()))
    assert model.width == four.hidden_size


def test_features_of_an_empty_stream_are_empty(four, packed) -> None:
    model = model_of(four, "concat_last_four")
    assert model.features([torch.zeros(0, 16)] * 5, ()).shape == (0, 12)
    batch = packed((4,))
    layers = model.encoder(batch, layers=True).layers
    torch.testing.assert_close(model.features(layers, (0, 4, 0)), model(batch))


def test_features_run_in_half_precision(four, packed) -> None:
    model = model_of(four, "weighted_sum")
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(packed())
    hidden.float().sum().backward()
    torch.testing.assert_close(hidden.float(), model(packed()), rtol=0.05, atol=0.05)


def test_the_lstm_begins_with_the_deviation_that_pytorch_gives_it(four) -> None:
    config = FeaturesConfig("last", lstm_hidden=64, lstm_layers=1)
    model = Model(four, {"letters": 31}, {}, config)
    model.initialise(0)
    drawn, theirs = model.features.lstm, Features(config, four).lstm
    assert drawn.weight_hh_l0.std().item() == pytest.approx(theirs.weight_hh_l0.std().item(), rel=0.05)
    assert not drawn.bias_hh_l0.any()


@pytest.mark.parametrize("layers", ["second_to_last", "sum_last_four", "concat_last_four", "weighted_sum_last_four"])
def test_layers_that_the_encoder_does_not_have_are_refused(layers) -> None:
    with pytest.raises(ConfigError, match=rf"features\.layers is {layers}.* this one has 1"):
        Features(FeaturesConfig(layers), EncoderConfig(16, 1, 2, 24))


@pytest.mark.parametrize(("fields", "message"), [({"lstm_hidden": 0}, "lstm_hidden is 0"), ({"lstm_layers": -1}, "-1")])
def test_numbers_that_make_no_lstm_are_refused(fields, message) -> None:
    with pytest.raises(ConfigError, match=message):
        FeaturesConfig(**fields)


def test_a_masked_lm_cannot_stand_on_features(four) -> None:
    with pytest.raises(ConfigError, match="masked_lm"):
        Model(four, {"letters": 31}, {"letters": ["masked_lm"]}, FeaturesConfig())
