"""``seqbert import`` and ``seqbert export`` of ESM-2 and ModernBERT, and what can be asked of them in between."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from model_runs import write_run
from safetensors.torch import load_file

import seqbert
from seqbert.errors import CheckpointError
from seqbert.models import hub
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.models.model import Model

RESIDUES = [*("<cls>", "<pad>", "<eos>", "<unk>"), *"LAGVSERTIDPKQNFYMHWCXBUZO.-", *("<null_1>", "<mask>")]

ESM = EncoderConfig(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    type_vocab_size=0,
    dropout=0.0,
    layer_norm_eps=1e-5,
    initializer_range=0.3,
    position="rotary",
    norm_first=True,
    embedding_norm=False,
    token_dropout=True,
    rope_precision="float16",
)


@pytest.fixture
def published(tmp_path) -> Path:
    """An ESM-2 as it is published: a list of tokens, no tokenizer.json, and contacts that were trained."""
    folder = tmp_path / "esm2"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(RESIDUES))
    hub.load_tokenizer(folder).save(str(tmp_path / "tokenizer.json"))
    model = Model(ESM, {"protein": 33}, {"protein": ["masked_lm"]}, mask_ids={"protein": 32})
    model.initialise(0)
    contacts = {
        "esm.contact_head.regression.weight": torch.randn(1, 4),
        "esm.contact_head.regression.bias": torch.ones(1),
    }
    hub.save(model, "protein", folder, tmp_path / "tokenizer.json", 64, kept=contacts)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return folder


def test_an_esm_is_imported_asked_and_exported_byte_for_byte(published, tmp_path) -> None:
    report = seqbert.import_checkpoint(published, tmp_path / "run", domain="protein")
    assert (report.newly_initialised, report.left_over) == ([], [])
    (masked,) = seqbert.fill(tmp_path / "run", "MKTAY[MASK]AKQR", top=3)
    assert len(masked) == 3
    seqbert.export(tmp_path / "run", tmp_path / "out")
    before, after = load_file(published / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert (tmp_path / "out/vocab.txt").read_text() == (published / "vocab.txt").read_text()
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["mask_token"] == "<mask>"
    assert hub.read_checkpoint(tmp_path / "out").config == ESM


def test_a_shape_that_no_architecture_has_is_asked_and_not_exported(tmp_path) -> None:
    write_run(tmp_path / "run", "protein", position="rotary")
    (masked,) = seqbert.fill(tmp_path / "run", "MKTAY[MASK]AKQR", top=3)
    assert len(masked) == 3
    with pytest.raises(CheckpointError, match="The nearest is BERT, against position: rotary"):
        seqbert.export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_modernbert_is_exported_as_one(tmp_path) -> None:
    modern = {field.name: getattr(PRESETS["modern-mini"], field.name) for field in dataclasses.fields(EncoderConfig)}
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    write_run(tmp_path / "run", "protein", **{**modern, **sizes})
    seqbert.export(tmp_path / "run", tmp_path / "out")
    assert hub.read_checkpoint(tmp_path / "out").architecture == "ModernBertForMaskedLM"
