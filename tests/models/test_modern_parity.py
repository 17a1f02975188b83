"""ModernBERT and ESM-2: the same numbers as Hugging Face transformers, in both directions."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers import drawn_wide, opened
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from seqbert.data.packing import PackedBatch, pack
from seqbert.domain import SPECIAL_TOKENS
from seqbert.models import hub
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.models.model import Model

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ESM_TOKENS = [
    *("<cls>", "<pad>", "<eos>", "<unk>"),
    *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
    *("<null_1>", "<mask>"),
]
"""The vocabulary that ESM-2 was released with."""

HEADS = {
    "ModernBertModel": {},
    "ModernBertForMaskedLM": {"masked_lm": 31},
    "ModernBertForSequenceClassification": {"classification": 3},
    "ModernBertForTokenClassification": {"tagging": 5},
    "ModernBertForQuestionAnswering": {"span": 2},
    "ModernBertForMultipleChoice": {"choice": 1},
    "EsmModel": {"pair": 2},
    "EsmForMaskedLM": {"masked_lm": 33},
    "EsmForSequenceClassification": {"classification": 3},
    "EsmForTokenClassification": {"tagging": 5},
}

LENGTHS = (200, 97, 30, 30, 8, 2)
"""Beyond a window of 64 to each side, and within it."""


@dataclasses.dataclass
class Family:
    """What the two architectures differ in here."""

    vocab_size: int
    pad: int
    mask: int
    ordinary: tuple[int, int]

    def batch(self, lengths: tuple[int, ...] = LENGTHS) -> PackedBatch:
        """Sequences of random tokens, of which a fifth are [MASK] and the second half another text behind [SEP]."""
        generator = np.random.default_rng(0)
        sequences = [generator.integers(*self.ordinary, length) for length in lengths]
        for sequence in sequences:
            sequence[generator.random(len(sequence)) < 0.2] = self.mask
            sequence[0], sequence[len(sequence) // 2] = 2, 3
        return pack("letters", sequences)

    def padded(self, batch: PackedBatch) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """A batch as transformers takes it, and where its tokens are."""
        ids = torch.full((len(batch.lengths), max(batch.lengths)), self.pad)
        present = torch.arange(ids.shape[1])[None] < torch.tensor(batch.lengths)[:, None]
        ids[present] = batch.ids
        return {"input_ids": ids, "attention_mask": present.long()}, present


MODERN = Family(vocab_size=31, pad=0, mask=4, ordinary=(5, 31))
ESM = Family(vocab_size=33, pad=1, mask=32, ordinary=(4, 31))


def family_of(architecture: str) -> Family:
    return MODERN if architecture.startswith("Modern") else ESM


def theirs(architecture: str, **changes: Any):
    """A random model of transformers, with everything drawn wide enough to matter."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "num_labels": next(iter(HEADS[architecture].values()), 2),
        "attn_implementation": "eager",
    }
    if architecture.startswith("Modern"):
        tokens = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
        config = transformers.ModernBertConfig(**{**sizes, **tokens, "vocab_size": 31, **changes})
    else:
        shape = {
            "position_embedding_type": "rotary",
            "emb_layer_norm_before": False,
            "token_dropout": True,
            "layer_norm_eps": 1e-5,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        tokens = {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}
        config = transformers.EsmConfig(**{**sizes, **shape, **tokens, **changes})
    return drawn_wide(getattr(transformers, architecture)(config))


def our_outputs(model: Model, batch: PackedBatch) -> dict[str, torch.Tensor]:
    hidden = model(batch)
    first = hidden[batch.cu_seqlens[:-1].long()]
    outputs = {"hidden": hidden}
    for kind, head in model.heads["letters"].items():
        if kind == "pair":
            outputs[kind] = torch.tanh(head.pooler(first))
        else:
            outputs[kind] = head(first if kind in ("classification", "choice") else hidden)
    return outputs


def their_outputs(model, architecture: str, batch: PackedBatch) -> dict[str, torch.Tensor]:
    inputs, present = family_of(architecture).padded(batch)
    if architecture.endswith("MultipleChoice"):
        inputs = {name: tensor.unflatten(0, (-1, 2)) for name, tensor in inputs.items()}
    output = model(**inputs, output_hidden_states=True)
    outputs = {"hidden": output.hidden_states[-1][present]} if hasattr(output, "logits") else {}
    if architecture.endswith("Model"):
        outputs["hidden"] = output.last_hidden_state[present]
        return outputs | ({"pair": output.pooler_output} if architecture == "EsmModel" else {})
    if architecture.endswith("QuestionAnswering"):
        outputs = {"hidden": output.hidden_states[-1][present]}
        return outputs | {"span": torch.stack([output.start_logits, output.end_logits], dim=-1)[present]}
    (kind,) = HEADS[architecture]
    if kind in ("masked_lm", "tagging"):
        return outputs | {kind: output.logits[present]}
    return outputs | {kind: output.logits.reshape(-1, HEADS[architecture][kind])}


def standard(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


@pytest.fixture(scope="module")
def residues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of ESM-2, as it is once it was read."""
    folder = tmp_path_factory.mktemp("residues")
    (folder / "vocab.txt").write_text("\n".join(ESM_TOKENS))
    hub.load_tokenizer(folder).save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture
def tokenizer_of(tokenizer_json: Path, residues: Path) -> Callable[[str], Path]:
    return lambda architecture: tokenizer_json if architecture.startswith("Modern") else residues


@pytest.mark.parametrize("architecture", HEADS)
def test_their_weights_give_their_outputs_and_come_out_again_byte_for_byte(
    architecture, tokenizer_of, tmp_path
) -> None:
    reference = theirs(architecture)
    reference.save_pretrained(tmp_path / "in")
    checkpoint = hub.read_checkpoint(tmp_path / "in")
    model, report = opened(tmp_path / "in")
    assert report.left_over == []
    assert all("pair.classifier" in name for name in report.newly_initialised)
    assert model.heads_of("letters") == HEADS[architecture]
    batch = family_of(architecture).batch()
    with torch.no_grad():
        mine, their = our_outputs(model, batch), their_outputs(reference, architecture, batch)
    assert mine.keys() == their.keys()
    for kind in mine:
        torch.testing.assert_close(mine[kind], their[kind], rtol=1e-5, atol=1e-5, msg=kind)

    is_alone = architecture == "EsmModel"
    tokenizer_json = tokenizer_of(architecture)
    hub.save(model, "letters", tmp_path / "out", tokenizer_json, 256, is_alone, kept=checkpoint.kept)
    before = {standard(name): tensor for name, tensor in load_file(tmp_path / "in/model.safetensors").items()}
    after = load_file(tmp_path / "out/model.safetensors")
    weights = {name for name in before if not name.endswith("inv_freq")}
    assert weights == {name for name in after if not name.endswith("inv_freq")}
    assert all(torch.equal(before[name], after[name]) for name in weights)


@pytest.mark.parametrize("architecture", HEADS)
def test_row84_our_weights_open_in_transformers_with_nothing_missing_or_left_over(
    architecture, tokenizer_of, tmp_path
) -> None:
    config = our_config(architecture)
    heads = {"letters": HEADS[architecture]}
    family = family_of(architecture)
    model = Model(config, {"letters": family.vocab_size}, heads, mask_ids={"letters": family.mask}).eval()
    model.initialise(0)
    hub.save(model, "letters", tmp_path, tokenizer_of(architecture), 256, architecture == "EsmModel")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    loaded, information = getattr(transformers, architecture).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(information.values()), information
    batch = family.batch()
    with torch.no_grad():
        mine, their = our_outputs(model, batch), their_outputs(loaded.eval(), architecture, batch)
    for kind in mine:
        torch.testing.assert_close(mine[kind], their[kind], rtol=1e-5, atol=1e-5, msg=kind)
    checkpoint = hub.read_checkpoint(tmp_path)
    assert (checkpoint.config, checkpoint.architecture) == (config, architecture)
    loaded.save_pretrained(tmp_path / "theirs")
    assert hub.read_checkpoint(tmp_path / "theirs").config == config


def our_config(architecture: str, **changes: Any) -> EncoderConfig:
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
    if architecture.startswith("Modern"):
        return dataclasses.replace(PRESETS["modern-mini"], **{**sizes, "initializer_range": 0.2, **changes})
    esm = {
        "max_position_embeddings": 1026,
        "type_vocab_size": 0,
        "dropout": 0.0,
        "layer_norm_eps": 1e-5,
        "initializer_range": 0.2,
        "position": "rotary",
        "norm_first": True,
        "embedding_norm": False,
        "token_dropout": True,
        "rope_precision": "float16",
    }
    return EncoderConfig(**{**sizes, **esm, **changes})


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        (
            "ModernBertForMaskedLM",
            {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True},
        ),
        ("ModernBertForMaskedLM", {"hidden_activation": "relu", "classifier_activation": "relu", "norm_eps": 1e-3}),
        ("ModernBertForMaskedLM", {"global_attn_every_n_layers": 2, "local_attention": 20}),
        ("ModernBertForMaskedLM", {"global_attn_every_n_layers": 1}),
        ("ModernBertForMaskedLM", {"attn_implementation": "sdpa"}),
        ("EsmForMaskedLM", {"attn_implementation": "sdpa"}),
        ("ModernBertForMaskedLM", {"layer_types": ["full_attention"] + ["sliding_attention"] * 3}),
        ("ModernBertForMaskedLM", {"global_rope_theta": 1000.0, "local_rope_theta": 50.0}),
        ("EsmForMaskedLM", {"token_dropout": False}),
        ("EsmForMaskedLM", {"rope_theta": 500.0}),
        ("EsmForMaskedLM", {"is_decoder": True}),
    ],
)
def test_other_shapes_are_theirs_too(architecture, changes, tokenizer_of, tmp_path) -> None:
    reference = theirs(architecture, **changes)
    reference.save_pretrained(tmp_path / "in")
    model, _ = opened(tmp_path / "in")
    hub.save(model, "letters", tmp_path / "out", tokenizer_of(architecture), 256)
    again = getattr(transformers, architecture).from_pretrained(tmp_path / "out").eval()
    batch = family_of(architecture).batch()
    with torch.no_grad():
        expected = their_outputs(reference, architecture, batch)
        for outputs in (our_outputs(model, batch), their_outputs(again, architecture, batch)):
            torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["ModernBertForMaskedLM", "EsmForMaskedLM"])
def test_their_weights_give_their_gradients(architecture, tmp_path) -> None:
    reference = theirs(architecture)
    reference.save_pretrained(tmp_path)
    model, _ = opened(tmp_path)
    batch = family_of(architecture).batch((90, 30))
    for outputs in (our_outputs(model, batch), their_outputs(reference, architecture, batch)):
        outputs["masked_lm"].square().mean().backward()
    parameters = dict(reference.named_parameters())
    layout = hub.read_checkpoint(tmp_path).layout
    gradients: dict[str, list[torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        gradients.setdefault(layout.their_name(name.replace(".letters.", ".*.")), []).append(parameter.grad)
    assert len(gradients) > 25
    for name, parts in gradients.items():
        torch.testing.assert_close(torch.cat(parts), parameters[name].grad, rtol=1e-4, atol=1e-5, msg=name)


def test_frequencies_that_were_trained_in_half_precision_stay_as_they_were(residues, tmp_path) -> None:
    """The published ESM-2 have them so; 200 tokens on, those of full precision would turn the heads otherwise."""
    reference = theirs("EsmForMaskedLM", hidden_size=128, num_attention_heads=2)
    reference.esm.rotary_embeddings.inv_freq.data = reference.esm.rotary_embeddings.inv_freq.half().float()
    reference.save_pretrained(tmp_path / "in")
    model, _ = opened(tmp_path / "in")
    assert model.config.rope_precision == "float16"
    hub.save(model, "letters", tmp_path / "out", residues, 256)
    again = transformers.EsmForMaskedLM.from_pretrained(tmp_path / "out").eval()
    batch = ESM.batch()
    with torch.no_grad():
        expected = their_outputs(reference, "EsmForMaskedLM", batch)
        for outputs in (our_outputs(model, batch), their_outputs(again, "EsmForMaskedLM", batch)):
            torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
        full = dataclasses.replace(model.config, rope_precision="float32")
        other = Model(full, {"letters": 33}, {"letters": ["masked_lm"]}, mask_ids={"letters": 32}).eval()
        other.load_state_dict(model.state_dict())
        assert (our_outputs(other, batch)["hidden"] - expected["hidden"]).abs().max() > 1e-3


def test_files_of_other_versions_are_read(tmp_path) -> None:
    """Version 4 has frequencies in every block, learned positions that nothing reads, and plain names of LayerNorms."""
    reference = theirs("EsmForMaskedLM")
    reference.save_pretrained(tmp_path)
    tensors = {standard(name): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    frequencies = tensors.pop(next(name for name in tensors if name.endswith("inv_freq")))
    for block in range(4):
        name = f"esm.encoder.layer.{block}.attention.self.rotary_embeddings.inv_freq"
        tensors[name] = frequencies.half().float()
    tensors["esm.embeddings.position_embeddings.weight"] = torch.ones(1026, 32)
    tensors["esm.embeddings.position_ids"] = torch.arange(1026)[None]
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = hub.read_checkpoint(tmp_path)
    assert checkpoint.left_over == []
    assert checkpoint.config.rope_precision == "float16"
    assert [note.split(":")[0].removeprefix("esm.") for note in checkpoint.ignored] == [
        "contact_head.regression.bias",
        "contact_head.regression.weight",
        "embeddings.position_embeddings.weight",
        "embeddings.position_ids",
    ]


def test_old_and_new_keys_of_modernbert_say_the_same(tmp_path) -> None:
    reference = theirs("ModernBertForMaskedLM", global_rope_theta=1000.0, local_rope_theta=50.0, local_attention=20)
    reference.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    new = hub.read_checkpoint(tmp_path).config
    assert (new.rope_theta, new.local_rope_theta, new.attention_window) == (1000.0, 50.0, 10)
    assert new.global_attention_every == 3
    for key in ("layer_types", "rope_parameters"):
        del settings[key]
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 1000.0, "local_rope_theta": 50.0}
    path.write_text(json.dumps(settings | old))
    assert hub.read_checkpoint(tmp_path).config == new


def test_a_fresh_task_begins_with_the_masked_lms_dense_layer_as_in_transformers(tmp_path) -> None:
    theirs("ModernBertForMaskedLM").save_pretrained(tmp_path)
    checkpoint = hub.read_checkpoint(tmp_path)
    reference = transformers.ModernBertForSequenceClassification.from_pretrained(tmp_path)
    model = Model(checkpoint.config, {"letters": 31}, {"letters": {"classification": 2}})
    model.initialise(0)
    report = hub.load_into(model, "letters", checkpoint, fresh={"classification"})
    head = model.heads["letters"]["classification"]
    assert torch.equal(head.dense.weight, reference.head.dense.weight)
    assert torch.equal(head.norm.weight, reference.head.norm.weight)
    assert report.newly_initialised == [
        f"heads.letters.classification.classifier.{name}" for name in ("weight", "bias")
    ]
    assert report.left_over == ["decoder.bias"]


@pytest.mark.parametrize("architecture", ["ModernBertForMaskedLM", "EsmForMaskedLM"])
def test_an_untied_decoder_is_left_over_with_its_head_and_a_note(architecture, tmp_path) -> None:
    theirs(architecture, tie_word_embeddings=False).save_pretrained(tmp_path)
    checkpoint = hub.read_checkpoint(tmp_path)
    assert checkpoint.heads == {}
    assert any("not tied" in note for note in checkpoint.ignored)
    assert any(name.endswith("decoder.weight") for name in checkpoint.left_over)


# Tokenizers

PROTEINS = ("MKTAYIAKQR", "mkt", "MJJK*L", "M K<mask>T", "", "A.B-C", "MKT<null_1>A", "12 AA 3")


def test_a_list_of_residues_gives_the_ids_of_their_esm_tokenizer(tmp_path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(ESM_TOKENS))
    mine, reference = hub.load_tokenizer(tmp_path), transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    for text in PROTEINS:
        assert mine.encode(text.replace("<mask>", "[MASK]")).ids == reference(text)["input_ids"], text
    assert mine.encode(PROTEINS[0], PROTEINS[1]).ids == reference(PROTEINS[0], PROTEINS[1])["input_ids"]
    assert [mine.token_to_id(token) for token in SPECIAL_TOKENS] == [1, 3, 0, 2, 32]


def test_an_exported_esm_has_its_own_names_of_special_tokens(residues, tmp_path) -> None:
    config = our_config("EsmForMaskedLM")
    model = Model(config, {"letters": 33}, {"letters": ["masked_lm"]}, mask_ids={"letters": 32})
    hub.save(model, "letters", tmp_path, residues, 256)
    reference = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in PROTEINS:
        assert auto(text)["input_ids"] == reference(text)["input_ids"], text
    assert (auto.mask_token, auto.cls_token, auto.pad_token_id) == ("<mask>", "<cls>", 1)
    assert hub.read_checkpoint(tmp_path).mask_id == 32
    mine = hub.load_tokenizer(tmp_path)
    assert mine.to_str() == Tokenizer.from_file(str(residues)).to_str()
