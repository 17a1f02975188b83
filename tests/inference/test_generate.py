"""Continuing a sequence with a causal model."""

import json
from pathlib import Path

import numpy as np
import pytest
import runs
import torch
from model_runs import write_run

import seqbert
from seqbert.cli import main
from seqbert.errors import ConfigError
from seqbert.inference.grammar import Grammar
from seqbert.inference.trained import Trained


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causal")
    objective = {"masked_lm": None, "causal_lm": {"weight": 1.0}}
    return seqbert.pretrain(runs.settings(folder, model={"causal": True}, objective=objective)).folder


def test_the_most_probable_tokens_are_those_of_transformers(causal: Path) -> None:
    """Its BertLMHeadModel, greedy, with special tokens suppressed."""
    from transformers import AutoTokenizer, BertLMHeadModel

    model = BertLMHeadModel.from_pretrained(causal / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(causal / "model")
    ids = [tokenizer.cls_token_id, *tokenizer("the cat", add_special_tokens=False)["input_ids"]]
    for _ in range(12):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        logits[tokenizer.all_special_ids] = -torch.inf
        ids.append(int(logits.argmax()))
    (made,) = seqbert.generate(causal, "the cat", tokens=12, temperature=0)
    assert made.text == tokenizer.decode(ids[1:]).strip() or made.text.split() == tokenizer.decode(ids[1:]).split()


def test_one_seed_gives_the_same_continuations_and_another_gives_others(causal: Path) -> None:
    first, again, other = (seqbert.generate(causal, "a dog", number=3, tokens=8, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert len({made.text for made in first}) > 1 and all(made.text.startswith("a dog") for made in first)


def test_with_one_token_to_draw_from_it_is_the_most_probable(causal: Path) -> None:
    greedy = seqbert.generate(causal, "the", tokens=6, temperature=0)
    assert seqbert.generate(causal, "the", tokens=6, top_k=1) == greedy
    assert seqbert.generate(causal, "the", tokens=6, top_p=1e-9) == greedy


def test_it_goes_on_beyond_the_positions_of_the_encoder(causal: Path, tmp_path: Path) -> None:
    objective = {"masked_lm": None, "causal_lm": {"weight": 1.0}}
    shape = {"causal": True, "max_position_embeddings": 32}
    short = seqbert.pretrain(runs.settings(tmp_path, model=shape, objective=objective)).folder
    (made,) = seqbert.generate(short, "the cat", tokens=50)
    assert made.tokens == 50 and np.isfinite(made.log_probability)


def test_the_log_probability_is_what_score_gives_the_whole_sequence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "dna", causal=True)
    (made,) = seqbert.generate(folder, tokens=20)
    (row,) = seqbert.score(folder, sequence=made.text).rows
    assert len(made.text) == 20
    assert made.log_probability == pytest.approx(row["score"], abs=1e-4)


def test_tokens_that_overlap_add_one_symbol_each_and_leave_the_beginning_as_it_is(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "dna", {"tokens": "kmer", "k": 3}, causal=True)
    for temperature in (0.0, 1.0):
        for made in seqbert.generate(folder, "ACGTTGCA", tokens=30, number=3, temperature=temperature):
            assert made.text.startswith("ACGTTGCA") and len(made.text) == 8 + 30
    with pytest.raises(ConfigError, match="3 symbols long, and the beginning has 2"):
        seqbert.generate(folder, "AC")


def test_a_tune_keeps_the_rules_of_its_domain_and_is_written_as_one(tmp_path: Path) -> None:
    trained = Trained.of_run(write_run(tmp_path / "run", "music", causal=True))
    (made,) = seqbert.generate(trained, tokens=60, output=tmp_path / "made.mid")
    grammar = Grammar.of(trained.domain)
    assert grammar is not None and (tmp_path / "made.mid").read_bytes().startswith(b"MThd")
    assert made.text.startswith("Bar")
    kinds = grammar.kind[trained.domain.encode([made.text], offsets=False).ids.astype(np.int64)]
    assert len(kinds) > 1 and grammar.follows[kinds[:-1], kinds[1:]].all()


def test_a_model_that_sees_both_sides_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = seqbert.pretrain(runs.settings(tmp_path)).folder
    with pytest.raises(ConfigError, match=r"model\.causal: true"):
        seqbert.generate(folder, "the")


@pytest.mark.parametrize("argument", [{"tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_k": 0}, {"seed": -1}])
def test_numbers_that_cannot_be_used_are_refused(causal: Path, argument: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(argument))):
        seqbert.generate(causal, "the", **argument)


def test_the_command_prints_what_it_made(causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", str(causal), "the cat", "--tokens", "5", "--output", str(tmp_path / "made.txt")]
    assert main([*command, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["tokens"] == 5 and (tmp_path / "made.txt").read_text().strip() == row["text"]
    assert main(command) == 0
    assert row["text"] in capsys.readouterr().out
