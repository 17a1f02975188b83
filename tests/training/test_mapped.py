"""Weights of one domain for the symbols of another: mapped words, and parts of the weights."""

import json
from pathlib import Path
from typing import Any

import labelled
import pytest
import runs
import torch
from tokenizers import Tokenizer

import seqbert
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError
from seqbert.models.hub import read_checkpoint
from seqbert.training.mapped import map_vocabulary

WORD = "encoder.embeddings.word.*.weight"
STILL = {"epochs": 1, "learning_rate": 1e-12}
"""So small a rate that the weights stay what they began as."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on text, whose words the bases of DNA are given."""
    return seqbert.pretrain(runs.settings(tmp_path_factory.mktemp("text"))).folder


def sequences(folder: Path) -> Path:
    path = folder / "bases.csv"
    lines = [f"{'ACGT' * (3 + n % 5)},{'no' if n % 2 else 'yes'}" for n in range(24)]
    path.write_text("sequence,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, init: Path, **changes: Any) -> dict[str, Any]:
    tree = labelled.settings(folder, init=str(init), training=STILL, **changes)
    tree["data"]["train"] = [str(sequences(folder))]
    return tree | {"domain": {"name": "dna"} | changes.get("domain", {})}


def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_each_base_is_given_the_embedding_of_a_word_of_its_own(tmp_path: Path, trained: Path) -> None:
    folder = seqbert.finetune(settings(tmp_path, trained, domain={"vocabulary": "map"})).folder
    given = json.loads((folder / "vocabulary_map.json").read_text())
    old, new = tokenizer(trained / "model"), tokenizer(folder / "model")
    assert set(given) == set(new.get_vocab()) and len(set(given.values())) == len(given)
    assert all(given[token] == token for token in SPECIAL_TOKENS)
    assert all(word.isalpha() and len(word) > 1 for token, word in given.items() if token not in SPECIAL_TOKENS)
    words, bases = (read_checkpoint(run / "model").tensors[WORD] for run in (trained, folder))
    for token, word in given.items():
        torch.testing.assert_close(bases[new.token_to_id(token)], words[old.token_to_id(word)], rtol=0, atol=1e-9)


def test_the_seed_decides_which_words(tmp_path: Path, trained: Path) -> None:
    old = tokenizer(trained / "model")
    new = Tokenizer.from_str(old.to_str())
    maps = [map_vocabulary(old, _few(new), seed) for seed in (0, 0, 1)]
    assert maps[0] == maps[1] != maps[2]


def _few(tokenizer: Tokenizer) -> Tokenizer:
    tree = json.loads(tokenizer.to_str())
    tree["model"]["vocab"] = {token: n for n, token in enumerate([*SPECIAL_TOKENS, "A", "C", "G", "T"])}
    return Tokenizer.from_str(json.dumps(tree))


def test_more_symbols_than_words_are_refused(trained: Path) -> None:
    old = tokenizer(trained / "model")
    with pytest.raises(ConfigError, match="whole words"):
        map_vocabulary(_few(old), old, 0)


@pytest.mark.parametrize("parts", ["all", "embeddings", "shape"])
def test_what_is_taken_of_init_is_taken_and_the_rest_is_drawn_anew(tmp_path: Path, trained: Path, parts: str) -> None:
    tree = settings(tmp_path, trained, domain={"vocabulary": "map", "map_seed": 3}, init_parts=parts)
    folder = seqbert.finetune(tree).folder
    before, after = (read_checkpoint(run / "model").tensors for run in (trained, folder))
    block, position = "encoder.blocks.1.attention.query.weight", "encoder.embeddings.position.weight"
    assert torch.allclose(before[block], after[block], atol=1e-9) == (parts == "all")
    assert torch.allclose(before[position], after[position], atol=1e-9) == (parts != "shape")


def test_parts_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="init_parts"):
        seqbert.finetune(labelled.settings(tmp_path, init_parts="shape"))
    with pytest.raises(ConfigError, match=r"domain\.vocabulary"):
        seqbert.finetune(labelled.settings(tmp_path, domain={"vocabulary": "map"}))
