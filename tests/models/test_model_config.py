import dataclasses

import pytest

from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS, EncoderConfig, ModelConfig


@pytest.mark.parametrize(
    ("name", "layers", "hidden_size"),
    [
        ("bert-tiny", 2, 128),
        ("bert-mini", 4, 256),
        ("bert-small", 4, 512),
        ("bert-medium", 8, 512),
        ("bert-base", 12, 768),
        ("bert-large", 24, 1024),
        ("bert-L10-H512", 10, 512),
    ],
)
def test_presets_have_the_published_sizes(name: str, layers: int, hidden_size: int) -> None:
    config = PRESETS[name]
    assert (config.num_hidden_layers, config.hidden_size) == (layers, hidden_size)
    assert (config.num_attention_heads, config.intermediate_size) == (hidden_size // 64, 4 * hidden_size)


def test_all_24_small_sizes_are_there_and_named_ones_are_among_them() -> None:
    by_shape = {name: PRESETS[name] for name in PRESETS if name.startswith("bert-L")}
    assert len(by_shape) == 24
    assert by_shape["bert-L2-H128"] == PRESETS["bert-tiny"]
    assert by_shape["bert-L12-H768"] == PRESETS["bert-base"]


def test_a_field_overrides_the_preset_and_leaves_the_rest() -> None:
    config = ModelConfig("bert-tiny", dropout=0.0, causal=True).resolve()
    assert config == dataclasses.replace(PRESETS["bert-tiny"], dropout=0.0, causal=True)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'no preset "bert-minni".*Did you mean "bert-mini"'):
        ModelConfig("bert-minni")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 100, "num_attention_heads": 3}, "hidden_size 100 .* 3 attention heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"type_vocab_size": -1}, "type_vocab_size is -1"),
        ({"dropout": 1.0}, r"dropout is 1\.0"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"layer_norm_eps": 0.0}, r"layer_norm_eps is 0\.0"),
        ({"initializer_range": "0.02"}, r"initializer_range is '0\.02'"),
        ({"causal": "no"}, "causal is 'no'"),
        ({"hidden_act": "gelu_nwe"}, '"gelu_nwe" is unknown.*Did you mean "gelu_new"'),
    ],
)
def test_values_that_cannot_be_used_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**fields)


def test_every_field_of_the_encoder_can_be_set_in_a_config() -> None:
    names = {field.name for field in dataclasses.fields(ModelConfig)} - {"preset"}
    assert names == {field.name for field in dataclasses.fields(EncoderConfig)}
