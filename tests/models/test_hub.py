"""Reading and writing Hugging Face folders; that the numbers agree with transformers is test_parity.py's."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from seqbert.errors import CheckpointError
from seqbert.models import hub
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model

BOTH = ("masked_lm", "pair")


@pytest.fixture
def model(small, vocab_size) -> Model:
    model = Model(small, {"letters": vocab_size}, {"letters": BOTH})
    model.initialise(3)
    return model


@pytest.fixture
def folder(model, tokenizer_json, tmp_path) -> Path:
    """A checkpoint that was saved by us, to be spoilt."""
    hub.save(model, "letters", tmp_path / "saved", tokenizer_json, max_length=12)
    return tmp_path / "saved"


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder: Path, edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in edit(tensors).items()}, folder / "model.safetensors")


def weights(model: Model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def test_what_is_saved_comes_back_bit_for_bit(model, folder) -> None:
    checkpoint = hub.read_checkpoint(folder)
    assert checkpoint.config == model.config
    assert (checkpoint.architecture, checkpoint.heads) == ("BertForPreTraining", {"masked_lm": 31, "pair": 2})
    again = Model(checkpoint.config, {"other name": checkpoint.vocab_size}, {"other name": BOTH})
    report = hub.load_into(again, "other name", checkpoint)
    assert (report.newly_initialised, report.left_over, report.ignored) == ([], [], [])
    assert len(report.loaded) == len(weights(model))
    for before, after in zip(weights(model).values(), weights(again).values(), strict=True):
        assert torch.equal(before, after)


def test_saving_twice_gives_the_same_bytes(model, folder, tokenizer_json, tmp_path) -> None:
    hub.save(model, "letters", tmp_path / "again", tokenizer_json, max_length=12)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_row84_the_tied_decoder_is_saved_once_and_its_bias_is_kept(model, folder) -> None:
    saved = load_file(folder / "model.safetensors")
    assert not any("decoder" in name for name in saved)
    assert sum(t.numel() for t in saved.values()) == sum(p.numel() for p in model.parameters())
    with torch.no_grad():
        model.heads["letters"]["masked_lm"].bias.normal_()
    shutil.copy(folder / "tokenizer.json", folder.parent / "tokenizer.json")
    hub.save(model, "letters", folder, folder.parent / "tokenizer.json", max_length=12)
    again = Model(model.config, model.vocabularies, {"letters": BOTH})
    hub.load_into(again, "letters", hub.read_checkpoint(folder))
    hidden = torch.randn(4, 32)
    assert torch.equal(model.heads["letters"]["masked_lm"](hidden), again.heads["letters"]["masked_lm"](hidden))


def test_row84_either_twin_of_a_tied_pair_serves(model, folder) -> None:
    head = "cls.predictions"

    def only_the_decoders_bias(tensors):
        tensors[f"{head}.decoder.bias"] = tensors.pop(f"{head}.bias") + 1
        tensors[f"{head}.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
        return {name: tensor.clone() for name, tensor in tensors.items()}

    edit_weights(folder, only_the_decoders_bias)
    checkpoint = hub.read_checkpoint(folder)
    assert (checkpoint.tensors["heads.*.masked_lm.bias"] == 1).all()
    assert checkpoint.left_over == []
    assert [note.split(":")[0] for note in checkpoint.ignored] == [f"{head}.decoder.weight"]


def test_an_untied_decoder_is_left_over_with_its_head_and_a_note(folder) -> None:
    def untie(tensors):
        return tensors | {"cls.predictions.decoder.weight": torch.ones(31, 32)}

    edit_weights(folder, untie)
    checkpoint = hub.read_checkpoint(folder)
    assert checkpoint.heads == {"pair": 2}
    assert len(checkpoint.left_over) == 6
    assert "not tied" in checkpoint.ignored[0]


def test_old_names_are_understood(model, folder) -> None:
    """Names: gamma, beta and a saved position_ids buffer, as in bert-base-uncased's file on the hub."""

    def age(tensors):
        aged = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
            for name, t in tensors.items()
        }
        return aged | {"bert.embeddings.position_ids": torch.arange(16)[None]}

    edit_weights(folder, age)
    checkpoint = hub.read_checkpoint(folder)
    assert checkpoint.left_over == []
    assert [note.split(":")[0] for note in checkpoint.ignored] == ["bert.embeddings.position_ids"]
    again = Model(checkpoint.config, {"letters": 31}, {"letters": BOTH})
    hub.load_into(again, "letters", checkpoint)
    for before, after in zip(weights(model).values(), weights(again).values(), strict=True):
        assert torch.equal(before, after)


def test_a_checkpoint_without_heads_says_what_is_new_and_one_with_more_what_is_left(
    small, vocab_size, tokenizer_json, tmp_path, folder
) -> None:
    bare = Model(small, {"letters": vocab_size})
    bare.initialise(0)
    hub.save(bare, "letters", tmp_path / "bare", tokenizer_json, max_length=12)
    assert "embeddings.LayerNorm.bias" in load_file(tmp_path / "bare" / "model.safetensors")
    whole = Model(small, {"letters": vocab_size}, {"letters": BOTH})
    whole.initialise(1)
    pooler = whole.heads["letters"]["pair"].pooler.weight.detach().clone()
    report = hub.load_into(whole, "letters", hub.read_checkpoint(tmp_path / "bare"))
    assert all(name.startswith("heads.letters.") for name in report.newly_initialised)
    assert len(report.newly_initialised) == 9
    assert torch.equal(whole.heads["letters"]["pair"].pooler.weight, pooler)

    report = hub.load_into(bare, "letters", hub.read_checkpoint(folder))
    assert report.newly_initialised == []
    assert len(report.left_over) == 9
    assert {"bert.pooler.dense.weight", "cls.predictions.bias", "cls.seq_relationship.bias"} < set(report.left_over)


def test_tensors_of_other_heads_are_left_over_by_name(folder) -> None:
    edit_weights(folder, lambda tensors: tensors | {"classifier.weight": torch.ones(3, 32)})
    assert hub.read_checkpoint(folder).left_over == ["classifier.weight"]


def test_a_second_vocabulary_can_be_loaded_without_the_blocks(small, folder) -> None:
    joint = Model(small, {"digits": 15, "letters": 31}, {"digits": BOTH, "letters": BOTH})
    joint.initialise(0)
    before = weights(joint)
    report = hub.load_into(joint, "letters", hub.read_checkpoint(folder), shared=False)
    changed = {name for name, tensor in weights(joint).items() if not torch.equal(tensor, before[name])}
    assert changed and all(".letters." in name for name in changed)
    assert not any(".blocks." in name or ".digits." in name for name in report.loaded + report.newly_initialised)
    assert report.left_over == [] and report.ignored == ["blocks, positions and segments: the model's own are kept"]


def test_each_vocabulary_of_a_joint_model_is_saved_as_a_checkpoint_of_its_own(
    small, vocab_size, tokenizer_json, tmp_path
) -> None:
    joint = Model(small, {"digits": vocab_size + 1, "letters": vocab_size}, {"letters": ["masked_lm"]})
    joint.initialise(0)
    hub.save(joint, "digits", tmp_path / "digits", tokenizer_json, max_length=12)
    checkpoint = hub.read_checkpoint(tmp_path / "digits")
    assert (checkpoint.vocab_size, checkpoint.heads) == (vocab_size + 1, {})
    expected = joint.word_embedding("digits").weight
    assert torch.equal(checkpoint.tensors["encoder.embeddings.word.*.weight"], expected)


def test_row86_growing_keeps_old_rows_and_comes_back_after_saving(model, vocab_size, tokenizer_json, tmp_path) -> None:
    word, bias = (t.detach().clone() for t in (model.word_embedding("letters").weight, torch.arange(31.0)))
    with torch.no_grad():
        model.heads["letters"]["masked_lm"].bias.copy_(bias)
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    tokenizer.add_tokens(["new1", "new2"])
    tokenizer.save(str(tmp_path / "grown.json"))
    with pytest.raises(CheckpointError, match=r"grown\.json has token ids up to 32, but .* only 31 word embeddings"):
        hub.save(model, "letters", tmp_path / "out", tmp_path / "grown.json", max_length=12)
    assert not (tmp_path / "out").exists()

    hub.resize(model, "letters", vocab_size + 2, seed=0)
    grown = model.word_embedding("letters").weight
    assert torch.equal(grown[:vocab_size], word)
    assert grown[vocab_size:].std() > 0.01
    assert model.vocabularies == {"letters": vocab_size + 2}
    hub.save(model, "letters", tmp_path / "out", tmp_path / "grown.json", max_length=12)
    checkpoint = hub.read_checkpoint(tmp_path / "out")
    again = Model(checkpoint.config, {"letters": checkpoint.vocab_size}, {"letters": BOTH})
    hub.load_into(again, "letters", checkpoint)
    assert torch.equal(again.word_embedding("letters").weight, grown)
    head = again.heads["letters"]["masked_lm"]
    assert torch.equal(head.bias[:31], bias) and not head.bias[31:].any()
    assert head(torch.randn(2, 32)).shape == (2, vocab_size + 2)


def test_row86_the_same_seed_draws_the_same_new_rows_and_shrinking_is_refused(small) -> None:
    rows = []
    for seed in (0, 0, 1):
        model = Model(small, {"letters": 31})
        model.initialise(0)
        hub.resize(model, "letters", 40, seed)
        rows.append(model.word_embedding("letters").weight[31:])
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])
    with pytest.raises(CheckpointError, match="has 40 tokens and cannot be cut to 39"):
        hub.resize(model, "letters", 39, seed=0)


def test_row86_a_vocabulary_that_does_not_fit_is_named(folder, small) -> None:
    with pytest.raises(CheckpointError, match=r'"letters" has 30 tokens, .* has 31 word embeddings'):
        hub.load_into(Model(small, {"letters": 30}), "letters", hub.read_checkpoint(folder))
    edit_config(folder, vocab_size=33)
    with pytest.raises(CheckpointError, match="says vocab_size 33, but there are 31 word embeddings"):
        hub.read_checkpoint(folder)


def test_row101_config_json_is_data_and_nothing_in_it_is_imported_or_fetched(folder, monkeypatch) -> None:
    planted = folder / "planted.py"
    planted.write_text("raise SystemExit('code from a checkpoint was run')")
    monkeypatch.chdir(folder)
    edit_config(
        folder,
        auto_map={"AutoModel": "planted.Model", "AutoConfig": "planted.Config"},
        _attn_implementation="someone/kernel:planted",
        attn_implementation="planted.attention",
        kernel_config={"repo": "someone/kernel"},
        tokenizer_class="planted.Tokenizer",
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["planted.T", None]}}))
    checkpoint = hub.read_checkpoint(folder)
    hub.load_tokenizer(folder)
    (note,) = checkpoint.ignored
    for key in (
        "auto_map",
        "_attn_implementation",
        "attn_implementation",
        "kernel_config",
        "tokenizer_class",
    ):
        assert key in note


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, 'models of type "gpt2" are not supported; supported are bert'),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*not supported"),
        ({"hidden_act": "planted.activation"}, r'"planted\.activation" is unknown; known are gelu'),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
        ({"hidden_size": "32"}, "hidden_size is '32'; it must be a whole number"),
        ({"hidden_size": 33}, "hidden_size 33 cannot be shared"),
        ({"hidden_dropout_prob": "0.1"}, "dropout is '0.1'"),
        ({"layer_norm_eps": None}, "layer_norm_eps is None"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"is_decoder": "yes"}, "causal is 'yes'"),
        (
            {"num_hidden_layers": 3},
            r"lacks 16 weights of the encoder, beginning with bert\.encoder\.layer\.2",
        ),
        ({"num_hidden_layers": 1}, r"there is a weight bert\.encoder\.layer\.1\..*num_hidden_layers 1"),
        (
            {"intermediate_size": 64},
            r"intermediate\.dense\.bias has the shape \[48\].*must be \[64\]",
        ),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_by_name(folder, changes, message) -> None:
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        hub.read_checkpoint(folder)


def test_several_dropouts_become_one_with_a_note(folder) -> None:
    edit_config(folder, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1, classifier_dropout=0.3)
    checkpoint = hub.read_checkpoint(folder)
    assert checkpoint.config.dropout == 0.2
    assert "attention_probs_dropout_prob 0.1" in checkpoint.ignored[0]
    assert "classifier_dropout 0.3" in checkpoint.ignored[1]


def test_a_config_without_sizes_is_no_encoder(folder) -> None:
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 32}')
    with pytest.raises(CheckpointError, match="lacks vocab_size, num_hidden_layers"):
        hub.read_checkpoint(folder)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"[1, 2]", b'{"a": ', b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_named(folder, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        hub.read_checkpoint(folder)


def test_weights_that_are_cut_short_are_named(folder) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not readable.*cut short"):
        hub.read_checkpoint(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"no {name}"):
        hub.read_checkpoint(folder)


def test_a_folder_that_is_none_is_named(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        hub.read_checkpoint(tmp_path / "nowhere")


def test_a_pickle_is_refused_with_the_way_to_convert_it(folder) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*can run code.*save_pretrained"):
        hub.read_checkpoint(folder)


def test_quantised_weights_are_refused(folder) -> None:
    name = "bert.pooler.dense.weight"
    edit_weights(folder, lambda tensors: tensors | {name: tensors[name].to(torch.int8)})
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight holds torch\.int8"):
        hub.read_checkpoint(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_read_into_full_precision(model, folder, dtype) -> None:
    edit_weights(folder, lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()})
    again = Model(model.config, model.vocabularies, {"letters": BOTH})
    hub.load_into(again, "letters", hub.read_checkpoint(folder))
    for before, after in zip(weights(model).values(), weights(again).values(), strict=True):
        assert torch.equal(before.to(dtype).float(), after)


@pytest.mark.parametrize(
    "change",
    [{"num_attention_heads": 4}, {"hidden_act": "relu"}, {"causal": True}, {"max_position_embeddings": 8}],
)
def test_a_model_that_would_compute_something_else_is_not_loaded_into(folder, small, change) -> None:
    other = Model(dataclasses.replace(small, **change), {"letters": 31})
    with pytest.raises(CheckpointError, match=f"the model has {next(iter(change))}"):
        hub.load_into(other, "letters", hub.read_checkpoint(folder))


def shards(folder: Path, second: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    places = {name: "first.safetensors" if i % 2 else second for i, name in enumerate(names)}
    for shard in {"first.safetensors", Path(second).name}:
        part = {name: tensors[name] for name in names if Path(places[name]).name == shard}
        save_file(part, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()


def test_weights_in_several_files_are_read_together(model, folder) -> None:
    shards(folder, "second.safetensors")
    again = Model(model.config, model.vocabularies, {"letters": BOTH})
    assert hub.load_into(again, "letters", hub.read_checkpoint(folder)).newly_initialised == []
    (folder / "second.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names second\.safetensors, which is not there"):
        hub.read_checkpoint(folder)


def test_an_index_cannot_point_outside_its_folder(folder) -> None:
    shards(folder, "../second.safetensors")
    with pytest.raises(CheckpointError, match=r"names \"\.\./second\.safetensors\""):
        hub.read_checkpoint(folder)


def test_a_checkpoint_without_a_tokenizer_is_read_and_says_so(folder) -> None:
    assert hub.read_checkpoint(folder).tokenizer == folder / "tokenizer.json"
    (folder / "tokenizer.json").unlink()
    assert hub.read_checkpoint(folder).tokenizer is None
    with pytest.raises(CheckpointError, match=r"neither tokenizer\.json nor vocab\.txt"):
        hub.load_tokenizer(folder)


def test_a_saved_tokenizer_frames_texts_as_bert_does(folder, tokenizer_json) -> None:
    plain, saved = Tokenizer.from_file(str(tokenizer_json)), hub.load_tokenizer(folder)
    assert plain.encode("A B").tokens == ["A", "B"]
    assert saved.encode("A B").tokens == ["[CLS]", "A", "B", "[SEP]"]
    pair = saved.encode("A B", "C")
    assert pair.tokens == ["[CLS]", "A", "B", "[SEP]", "C", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1]
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 12


@pytest.mark.parametrize(("word", "tokens"), [("Deer", ["Deer", "[UNK]"]), ("deer", ["deer", "deer"])])
def test_a_vocab_txt_tells_whether_texts_are_lower_cased(tmp_path, word: str, tokens: list[str]) -> None:
    """A cased list has capital letters, as those of bert-base-cased and prot_bert do."""
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", word, ""]))
    tokenizer = hub.load_tokenizer(tmp_path)
    assert tokenizer.encode(f"{word} DEER", add_special_tokens=False).tokens == tokens


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"hello\nworld\n"])
def test_a_vocab_txt_that_is_none_is_named(tmp_path, content: bytes) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"vocab\.txt"):
        hub.load_tokenizer(tmp_path)


# Heads for tasks


def task_folder(small, tokenizer_json, folder: Path, heads: dict[str, int], features=None, **options) -> Model:
    model = Model(small, {"letters": 31}, {"letters": heads}, features)
    model.initialise(5)
    hub.save(model, "letters", folder, tokenizer_json, max_length=12, **options)
    return model


@pytest.mark.parametrize("heads", [{"classification": 3}, {"tagging": 4}, {"span": 2}, {"choice": 1}])
@pytest.mark.parametrize("features", [None, FeaturesConfig("weighted_sum", 8, 1), FeaturesConfig("last", 8, 0)])
def test_a_fine_tuned_model_comes_back_bit_for_bit(small, tokenizer_json, tmp_path, heads, features) -> None:
    model = task_folder(small, tokenizer_json, tmp_path, heads, features)
    checkpoint = hub.read_checkpoint(tmp_path)
    assert (checkpoint.heads, checkpoint.features) == (heads, features)
    again = Model(checkpoint.config, {"other": 31}, {"other": checkpoint.heads}, checkpoint.features)
    report = hub.load_into(again, "other", checkpoint)
    assert (report.newly_initialised, report.left_over, report.ignored) == ([], [], [])
    for before, after in zip(weights(model).values(), weights(again).values(), strict=True):
        assert torch.equal(before, after)


def test_saving_without_features_takes_those_of_an_earlier_model_away(small, tokenizer_json, tmp_path) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"tagging": 4}, FeaturesConfig("last", 8, 1))
    assert (tmp_path / "head.safetensors").is_file()
    task_folder(small, tokenizer_json, tmp_path, {"tagging": 4})
    assert hub.read_checkpoint(tmp_path).features is None
    assert not (tmp_path / "head.safetensors").exists()


@pytest.mark.parametrize("source", [{"masked_lm": 31, "pair": 2}, {"classification": 7}, {"choice": 1}])
@pytest.mark.parametrize("target", [{"classification": 3}, {"choice": 1}])
def test_a_fresh_head_keeps_its_classifier_and_takes_the_pooler(
    small, tokenizer_json, tmp_path, source, target
) -> None:
    old = task_folder(small, tokenizer_json, tmp_path, source)
    (kind,) = target
    model = Model(small, {"letters": 31}, {"letters": target})
    model.initialise(6)
    classifier = model.heads["letters"][kind].classifier.weight.detach().clone()
    report = hub.load_into(model, "letters", hub.read_checkpoint(tmp_path), fresh={kind})
    pooled = next(head for head in old.heads["letters"].values() if hasattr(head, "pooler"))
    assert torch.equal(model.heads["letters"][kind].pooler.weight, pooled.pooler.weight)
    assert torch.equal(model.heads["letters"][kind].classifier.weight, classifier)
    assert set(report.newly_initialised) == {f"heads.letters.{kind}.classifier.{name}" for name in ("weight", "bias")}
    assert any(name.endswith(("classifier.weight", "seq_relationship.weight")) for name in report.left_over)
    assert not any("pooler" in name for name in report.left_over)


def test_the_head_of_another_task_is_left_over_by_name(small, tokenizer_json, tmp_path) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"span": 2})
    model = Model(small, {"letters": 31}, {"letters": {"tagging": 5}})
    report = hub.load_into(model, "letters", hub.read_checkpoint(tmp_path))
    assert set(report.left_over) == {"qa_outputs.weight", "qa_outputs.bias"}
    assert set(report.newly_initialised) == {f"heads.letters.tagging.classifier.{name}" for name in ("weight", "bias")}


def test_features_and_their_heads_are_taken_only_by_the_same_features(small, tokenizer_json, tmp_path) -> None:
    features = FeaturesConfig("last", 16, 0)  # as wide as the hidden states
    task_folder(small, tokenizer_json, tmp_path, {"classification": 3}, features)
    checkpoint = hub.read_checkpoint(tmp_path)
    plain = Model(small, {"letters": 31}, {"letters": {"classification": 3}})
    report = hub.load_into(plain, "letters", checkpoint)
    assert all(name.startswith("heads.letters.classification.") for name in report.newly_initialised)
    assert len(report.newly_initialised) == len(report.left_over) == 4
    same = Model(small, {"letters": 31}, {"letters": {"classification": 3}}, features)
    assert hub.load_into(same, "letters", checkpoint).newly_initialised == []
    report = hub.load_into(same, "letters", checkpoint, fresh={"classification"})
    assert len(report.newly_initialised) == len(report.left_over) == 4


def test_a_head_of_other_labels_is_refused_and_nothing_is_loaded(small, tokenizer_json, tmp_path) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"tagging": 4})
    model = Model(small, {"letters": 31}, {"letters": {"tagging": 5}})
    before = weights(model)
    with pytest.raises(CheckpointError, match="head for tagging has 5 outputs, but that of the checkpoint .* has 4"):
        hub.load_into(model, "letters", hub.read_checkpoint(tmp_path))
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(model).items())


@pytest.mark.parametrize(
    "names",
    [
        {"0": "a", "1": "b"},
        {"0": "a", "1": "b", "3": "c"},
        {"0": "a", "1": "b", "2": ["c"]},
        {"0": "a", "1": "b", "2": "c", "3": "d"},
        ["a", "b", "c"],
        "abc",
    ],
)
def test_labels_that_do_not_name_each_class_are_passed_over_with_a_note(small, tokenizer_json, tmp_path, names) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"classification": 3}, labels=("x", "y", "z"))
    assert hub.read_checkpoint(tmp_path).labels == ("x", "y", "z")
    edit_config(tmp_path, id2label=names, problem_type=["planted"])
    checkpoint = hub.read_checkpoint(tmp_path)
    assert (checkpoint.labels, checkpoint.problem_type) == ((), None)
    assert checkpoint.ignored == ["config.json: id2label, which does not name each of the 3 classes"]


def test_labels_of_a_pretraining_checkpoint_are_not_taken_for_classes(folder) -> None:
    edit_config(folder, id2label={"0": "LABEL_0", "1": "LABEL_1"})
    checkpoint = hub.read_checkpoint(folder)
    assert (checkpoint.labels, checkpoint.ignored) == ((), [])


def test_labels_must_be_as_many_as_outputs(small, tokenizer_json, tmp_path) -> None:
    with pytest.raises(ValueError, match="2 labels were given for 3 outputs"):
        task_folder(small, tokenizer_json, tmp_path, {"tagging": 3}, labels=("x", "y"))


def test_a_task_architecture_without_its_classifier_still_gives_its_pooler(small, tokenizer_json, tmp_path) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"classification": 3})

    def without_classifier(tensors):
        return {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier.")}

    edit_weights(tmp_path, without_classifier)
    assert hub.read_checkpoint(tmp_path).heads == {"pair": 2}
    model = Model(small, {"letters": 31}, {"letters": {"classification": 3}})
    report = hub.load_into(model, "letters", hub.read_checkpoint(tmp_path))
    assert set(report.newly_initialised) == {
        f"heads.letters.classification.classifier.{name}" for name in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("heads", "name", "shape", "message"),
    [
        ({"span": 2}, "qa_outputs.weight", (3, 32), r"qa_outputs\.weight has the shape \[3, 32\].*must be \[2, 32\]"),
        ({"tagging": 4}, "classifier.bias", (3,), r"classifier\.bias has the shape \[3\].*must be \[4\]"),
        ({"tagging": 4}, "classifier.weight", (4, 31), r"the shape \[4, 31\].*must be \[4, 32\]"),
        ({"tagging": 4}, "classifier.weight", (0, 32), r"classifier\.\w+ has the shape"),
        ({"tagging": 4}, "classifier.weight", (), r"classifier\.\w+ has the shape"),
    ],
)
def test_a_head_of_the_wrong_shape_is_named(small, tokenizer_json, tmp_path, heads, name, shape, message) -> None:
    task_folder(small, tokenizer_json, tmp_path, heads)
    edit_weights(tmp_path, lambda tensors: tensors | {name: torch.ones(shape)})
    with pytest.raises(CheckpointError, match=message):
        hub.read_checkpoint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"[1, 2]", b'{"layers": "first"}', b'{"lstm_layers": -1}'])
@pytest.mark.parametrize("name", ["features.json", "head.safetensors"])
def test_damaged_features_are_named(small, tokenizer_json, tmp_path, name: str, content: bytes) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"span": 2}, FeaturesConfig("last", 8, 1))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        hub.read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: {}, r"lacks 8 weights of the features, beginning with features\.lstm"),
        (lambda tensors: tensors | {"encoder.planted.weight": torch.ones(1)}, r"encoder\.planted\.weight"),
        (lambda tensors: tensors | {"heads.*.masked_lm.bias": torch.ones(31)}, "masked_lm"),
        (lambda tensors: tensors | {"features.planted": torch.ones(1)}, r"features\.planted"),
        (lambda tensors: tensors | {"heads.*.tagging.planted": torch.ones(1)}, r"heads\.\*\.tagging\.planted"),
        (lambda tensors: tensors | {"heads.*.span.classifier.bias": torch.ones(2).int()}, r"torch\.int32"),
    ],
)
def test_a_head_file_that_does_not_fit_is_named(small, tokenizer_json, tmp_path, edit, message) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"span": 2}, FeaturesConfig("last", 8, 1))
    path = tmp_path / "head.safetensors"
    save_file(edit(load_file(path)), path)
    with pytest.raises(CheckpointError, match=message):
        hub.read_checkpoint(tmp_path)


def test_a_head_file_that_is_missing_is_named(small, tokenizer_json, tmp_path) -> None:
    task_folder(small, tokenizer_json, tmp_path, {"span": 2}, FeaturesConfig("last", 8, 1))
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"features\.json names head\.safetensors, which is not there"):
        hub.read_checkpoint(tmp_path)
