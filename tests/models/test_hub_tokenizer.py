"""Special tokens of other names: they get ours when a tokenizer is read, and keep their ids and all else."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import CheckpointError
from seqbert.models.hub_tokenizer import load_tokenizer, renamed

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def roberta(model: models.Model) -> Tokenizer:
    """A tokenizer with RoBERTa's names, and its way to frame a text."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(ROBERTA)
    ids = {token: tokenizer.token_to_id(token) for token in ROBERTA}
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    return tokenizer


VOCABULARY = {token: number for number, token in enumerate([*ROBERTA, "a", "b"])}


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel(VOCABULARY, unk_token="<unk>"),
        models.WordPiece(VOCABULARY, unk_token="<unk>"),
        models.BPE(VOCABULARY, [], unk_token="<unk>"),
        models.Unigram([(token, -1.0) for token in VOCABULARY], unk_id=3),
    ],
    ids=["WordLevel", "WordPiece", "BPE", "Unigram"],
)
def test_other_names_become_ours_with_the_same_ids(model, tmp_path: Path) -> None:
    theirs = roberta(model)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    assert [ours.token_to_id(token) for token in SPECIAL_TOKENS] == [1, 3, 0, 2, 4]
    assert ours.token_to_id("<s>") is None
    for text in ("a b", "a z b", ""):
        assert ours.encode(text).ids == theirs.encode(text).ids
    assert ours.encode("a [MASK]").ids == theirs.encode("a <mask>").ids
    back = renamed(ours, dict(zip(SPECIAL_TOKENS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True)))
    assert back.to_str() == theirs.to_str()


def test_a_tokenizer_config_says_which_token_is_which(tmp_path: Path) -> None:
    vocabulary = {token: number for number, token in enumerate(["P", "U", "C", "S", "M", "a"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="U"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    names = {"pad_token": "P", "unk_token": {"content": "U"}, "cls_token": "C", "eos_token": "S", "mask_token": "M"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    assert [load_tokenizer(tmp_path).token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]


def test_our_names_are_left_as_they_are(tmp_path: Path) -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL_TOKENS, "<mask>", "<s>", "a"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).to_str() == tokenizer.to_str()


@pytest.mark.parametrize(
    "names", [{"cls_token": 5}, {"cls_token": {}}, {"cls_token": ["[CLS]"]}, {"mask_token": None}, {"eos_token": "a"}]
)
def test_a_strange_tokenizer_config_changes_nothing_that_has_our_names(names, tmp_path: Path) -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL_TOKENS, "a"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    assert load_tokenizer(tmp_path).to_str() == tokenizer.to_str()


def test_a_damaged_tokenizer_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is not readable"):
        load_tokenizer(tmp_path)
