"""Shapes and heads that no published architecture holds: saved in a layout of our own, and not exported."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from seqbert.errors import CheckpointError
from seqbert.models import hub
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model

SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
MODERN = dataclasses.replace(PRESETS["modern-mini"], **SIZES)
BERT = EncoderConfig(**SIZES)
ESM = dataclasses.replace(
    BERT, position="rotary", norm_first=True, embedding_norm=False, type_vocab_size=0, token_dropout=True
)


def saved(folder: Path, config: EncoderConfig, heads: Any, tokenizer_json: Path, features=None) -> Model:
    model = Model(config, {"letters": 31}, {"letters": heads}, features, {"letters": 4})
    model.initialise(3)
    hub.save(model, "letters", folder, tokenizer_json, max_length=12)
    return model


@pytest.mark.parametrize(
    ("config", "heads", "reason"),
    [
        (dataclasses.replace(BERT, position="rotary"), ["masked_lm"], "The nearest is BERT, against position: rotary"),
        (dataclasses.replace(BERT, type_vocab_size=0), ["masked_lm"], "BERT, against type_vocab_size: 0"),
        (
            dataclasses.replace(BERT, attention_window=3, global_attention_every=2),
            [],
            "BERT, against attention_window: 3",
        ),
        (dataclasses.replace(BERT, token_dropout=True), [], "BERT, against token_dropout: true"),
        (dataclasses.replace(MODERN, causal=True), ["masked_lm"], "ModernBERT, against causal: true"),
        (dataclasses.replace(MODERN, rope_precision="float16"), [], "ModernBERT, against rope_precision: float16"),
        (dataclasses.replace(MODERN, task_head="bert"), {"tagging": 3}, "ModernBERT, against task_head: bert"),
        (MODERN, ["masked_lm", "pair"], "ModernBERT, against the heads masked_lm and pair"),
        (dataclasses.replace(ESM, hidden_act="relu"), ["masked_lm"], "ESM-2, against hidden_act: relu"),
        (dataclasses.replace(ESM, embedding_norm=True), [], "ESM-2, against embedding_norm: true"),
        (ESM, {"span": 2}, "ESM-2, against the head span"),
        (BERT, {"span": 2, "tagging": 4}, "BERT, against the heads span and tagging"),
        (
            dataclasses.replace(MODERN, embedding_norm=False, causal=True),
            [],
            "ModernBERT, against embedding_norm: false; causal: true",
        ),
    ],
)
def test_what_no_architecture_holds_comes_back_and_says_what_stands_against_it(
    config, heads, reason, tokenizer_json, tmp_path
) -> None:
    model = saved(tmp_path, config, heads, tokenizer_json)
    checkpoint = hub.read_checkpoint(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "seqbert"
    assert (checkpoint.config, checkpoint.heads) == (config, model.heads_of("letters"))
    assert (checkpoint.left_over, checkpoint.ignored) == ([], [])
    again = Model(config, {"x": 31}, {"x": checkpoint.heads}, mask_ids=checkpoint.mask_ids("x"))
    report = hub.load_into(again, "x", checkpoint)
    assert (report.newly_initialised, report.left_over) == ([], [])
    for before, after in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(before, after)
    assert reason in hub.obstacle(checkpoint)


@pytest.mark.parametrize("config", [BERT, MODERN, ESM])
@pytest.mark.parametrize("heads", [[], ["masked_lm"], {"tagging": 3}, {"classification": 2}])
def test_nothing_stands_against_a_published_shape(config, heads, tokenizer_json, tmp_path) -> None:
    saved(tmp_path, config, heads, tokenizer_json)
    checkpoint = hub.read_checkpoint(tmp_path)
    assert hub.obstacle(checkpoint) is None
    assert checkpoint.config == config


def test_features_of_our_own_shape_come_back(tokenizer_json, tmp_path) -> None:
    config = dataclasses.replace(MODERN, causal=True)
    features = FeaturesConfig("last", 8, 1)
    model = saved(tmp_path, config, {"tagging": 3}, tokenizer_json, features)
    checkpoint = hub.read_checkpoint(tmp_path)
    again = Model(checkpoint.config, {"x": 31}, {"x": checkpoint.heads}, checkpoint.features)
    assert hub.load_into(again, "x", checkpoint).newly_initialised == []
    assert torch.equal(again.features.lstm.weight_ih_l0, model.features.lstm.weight_ih_l0)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (MODERN, {"layer_types": ["full_attention"] * 3}, "layer_types is .*each of the 4 blocks"),
        (MODERN, {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
        (MODERN, {"layer_types": "full"}, "layer_types is 'full'"),
        (MODERN, {"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
        (MODERN, {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_parameters is .*not supported"),
        (MODERN, {"rope_parameters": [1]}, "rope_parameters"),
        (MODERN, {"rope_parameters": {"full_attention": {"rope_theta": "10"}}}, "rope_theta is '10'"),
        (MODERN, {"rope_scaling": {"factor": 2}}, "rope_scaling is .*not supported"),
        (MODERN, {"local_attention": "wide"}, "local_attention is 'wide'"),
        (MODERN, {"mlp_bias": True}, "mlp_bias is True and norm_bias is False"),
        (MODERN, {"classifier_activation": "relu"}, "classifier_activation is 'relu' and hidden_activation is 'gelu'"),
        (MODERN, {"num_hidden_layers": 5, "layer_types": None}, r"lacks 8 weights .*model\.layers\.4\.attn\.Wqkv"),
        (MODERN, {"intermediate_size": 64}, r"mlp\.Wi\.weight has the shape \[96, 32\].*must be \[128, 32\]"),
        (ESM, {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute', which is not supported"),
        (ESM, {"emb_layer_norm_before": True}, "emb_layer_norm_before is True"),
        (ESM, {"is_folding_model": True}, "is_folding_model is True"),
        (ESM, {"rope_theta": 20000.0}, "frequencies of rotary positions, .*not those of rope_theta 20000"),
        (ESM, {"mask_token_id": 5}, "mask_token_id is 5, but the tokenizer beside it has its mask at 4"),
        (ESM, {"mask_token_id": "<mask>"}, "mask_token_id is '<mask>'"),
        (ESM, {"mask_token_id": 31}, "mask_token_id is 31; .*one of the 31 tokens"),
        (dataclasses.replace(MODERN, causal=True), {"rope_theta": -1}, "rope_theta is -1"),
        (dataclasses.replace(MODERN, causal=True), {"position": "x"}, 'position is "x"'),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_by_name(config, changes, message, tokenizer_json, tmp_path) -> None:
    saved(tmp_path, config, ["masked_lm"], tokenizer_json)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))
    with pytest.raises(CheckpointError, match=message):
        hub.read_checkpoint(tmp_path)


def test_a_classifier_over_the_mean_is_left_out_with_a_note(tokenizer_json, tmp_path) -> None:
    saved(tmp_path, MODERN, {"classification": 3}, tokenizer_json)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classifier_pooling": "mean"}))
    checkpoint = hub.read_checkpoint(tmp_path)
    assert checkpoint.heads == {}
    assert set(checkpoint.left_over) == {
        "head.dense.weight",
        "head.norm.weight",
        "classifier.weight",
        "classifier.bias",
    }
    assert "classifier_pooling is 'mean'" in checkpoint.ignored[0]


def test_a_model_with_token_dropout_asks_for_the_mask(tokenizer_json, tmp_path) -> None:
    saved(tmp_path, ESM, ["masked_lm"], tokenizer_json)
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / name).unlink()
    assert hub.read_checkpoint(tmp_path).mask_id == 4
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mask_token_id": None}))
    with pytest.raises(CheckpointError, match="mask_token_id is None; with token_dropout"):
        hub.read_checkpoint(tmp_path)
