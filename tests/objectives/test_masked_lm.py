from pathlib import Path

import numpy as np
import pytest
import torch
from letters import Letters, OverlappingLetters, build, objective_and_source, source_of, write_documents

from seqbert.data.corpus import Corpus
from seqbert.errors import ConfigError
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.objectives.masked_lm import MaskedLMConfig, _lone_hidden
from seqbert.objectives.sequences import Sequences, build_sequences, draw_single


def batches(corpus: Corpus, steps: int = 10, **masked_lm: object):  # type: ignore[no-untyped-def]
    objective, source = objective_and_source(corpus, ObjectiveConfig(MaskedLMConfig(**masked_lm)))  # type: ignore[arg-type]
    return [objective.examples(source, step) for step in range(steps)]


def test_row53_of_each_sequence_exactly_the_rate_of_its_ordinary_tokens_is_masked_and_no_special_token(
    corpus: Corpus,
) -> None:
    for batch in batches(corpus, probability=0.15):
        index = batch.targets["masked_lm"].index.numpy()
        owner = np.searchsorted(batch.cu_seqlens.numpy(), index, side="right") - 1
        counts = np.bincount(owner, minlength=len(batch.lengths))
        expected = [max(1, int((length - 2) * 0.15 + 0.5)) for length in batch.lengths]
        assert counts.tolist() == expected
        assert (batch.targets["masked_lm"].labels >= 5).all()


def test_validation_masks_15_percent_whatever_the_rate_of_training(corpus: Corpus) -> None:
    found = []
    for probability in (0.15, 0.4):
        objective, source = objective_and_source(corpus, ObjectiveConfig(MaskedLMConfig(probability=probability)))
        found.append([batch.ids.tolist() for batch in objective.validation(source, 4096)])
        masked = [len(objective.examples(source, step).targets["masked_lm"].index) for step in range(10)]
        assert abs(sum(masked) / (10 * 2048) - probability) < 0.04
    assert found[0] == found[1]
    assert 0.12 < sum(row.count(4) for row in found[0]) / sum(map(len, found[0])) < 0.17


def test_row51_a_sequence_of_one_token_at_a_low_rate_still_has_a_target(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.letters").write_text("\n\n".join("abcdefghij" * 3))
    corpus = build(tmp_path / "files")
    for batch in batches(corpus, steps=50, probability=0.01):
        assert len(batch.targets["masked_lm"].index) == len(batch.lengths)


def test_row52_random_tokens_are_ordinary_ones_and_all_of_them_occur(corpus: Corpus) -> None:
    drawn: list[int] = []
    for batch in batches(corpus, steps=60, probability=1.0, mask=0.0, random=1.0):
        drawn += batch.ids[batch.targets["masked_lm"].index].tolist()
    assert len(drawn) > 100_000
    assert np.bincount(drawn, minlength=15)[:5].sum() == 0
    shares = np.bincount(drawn, minlength=15)[5:] / len(drawn)
    assert np.abs(shares - 0.1).max() < 0.005


def test_masked_random_and_kept_tokens_come_in_the_shares_of_bert(corpus: Corpus) -> None:
    kept = masked = total = 0
    for batch in batches(corpus, steps=60):
        target = batch.targets["masked_lm"]
        seen = batch.ids[target.index]
        masked += int((seen == 4).sum())
        kept += int((seen == target.labels).sum())
        total += len(seen)
    assert abs(masked / total - 0.8) < 0.01
    assert abs(kept / total - (0.1 + 0.1 / 10)) < 0.01  # a random letter is the true one in 1 of 10


def test_row10_a_special_token_that_a_tokenizer_adds_is_neither_masked_nor_drawn(tmp_path: Path) -> None:
    class WithMore(Letters):
        def tokenizer(self, segments, vocab_size):  # type: ignore[no-untyped-def]
            tokenizer = super().tokenizer(segments, vocab_size)
            tokenizer.add_special_tokens(["<bos2>"])
            return tokenizer

        def encode(self, texts, offsets=True):  # type: ignore[no-untyped-def]
            encoded = super().encode(texts, offsets)
            encoded.ids[::7] = self.vocabulary.token_to_id("<bos2>")
            return encoded

    (tmp_path / "files").mkdir()
    write_documents(tmp_path / "files" / "a.letters", documents=50)
    request = ObjectiveConfig(MaskedLMConfig(probability=0.5, mask=0.0, random=1.0))
    import letters

    letters.WithMore = WithMore  # type: ignore[attr-defined]
    corpus = build(tmp_path / "files", WithMore())
    objective, source = objective_and_source(corpus, request)
    for step in range(100):
        batch = objective.examples(source, step)
        target = batch.targets["masked_lm"]
        assert (batch.ids == 15).any()
        assert not (target.labels == 15).any() and not (batch.ids[target.index] == 15).any()


def test_row54_words_are_masked_as_a_whole(corpus: Corpus) -> None:
    config = ObjectiveConfig(MaskedLMConfig(unit="word", mask=1.0, random=0.0))
    objective, source = objective_and_source(corpus, config, max_length=128, tokens_per_step=8192)
    shares = []
    for step in range(10):
        drawn = draw_single(source, source.step(step), source.max_length)
        sequences = build_sequences(source, drawn, units=True)
        _, target = objective.token_term.apply(sequences, source.seed)
        assert sequences.unit_start is not None
        unit = np.cumsum(sequences.unit_start)
        ordinary = sequences.ids >= 5
        chosen = np.isin(unit, unit[target.index.numpy()]) & ordinary
        assert np.array_equal(np.flatnonzero(chosen), target.index.numpy())
        shares.append(len(target.index) / ordinary.sum())
    assert 0.14 < np.mean(shares) < 0.165


def test_an_unknown_unit_is_refused_with_those_that_exist(corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match="token and word"):
        objective_and_source(corpus, ObjectiveConfig(MaskedLMConfig(unit="bar")))


def test_row68_masks_depend_on_the_place_alone_and_differ_between_epochs(corpus: Corpus) -> None:
    first, again = batches(corpus, steps=3), batches(corpus, steps=3)
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one.ids, two.ids)
    assert not torch.equal(first[0].ids[:100], first[1].ids[:100])


def test_in_validation_an_overlapping_token_counts_only_where_it_hides_exactly_one_symbol(tmp_path: Path) -> None:
    # Tokens of 3 symbols that share 2. Two segments of 6 and 4 tokens between [CLS] and [SEP].
    start = np.zeros(12, bool)
    start[[0, 1, 7, 11]] = True
    ordinary = np.ones(12, bool)
    ordinary[[0, 11]] = False

    def lone(*chosen: int) -> list[int]:
        ids, lengths = np.full(12, 5), np.array([12])
        sequences = Sequences(ids, ids * 0, None, start, np.arange(12), lengths, None, np.array([-1]))  # type: ignore[arg-type]
        return _lone_hidden(np.array(chosen), sequences, ordinary, overlap=2).tolist()

    assert lone(2, 3, 4) == [4]  # the symbol at 4 is reached by tokens 2, 3 and 4, and token 5 shows what follows
    assert lone(3, 4) == []  # token 2 shows it
    assert lone(1, 2) == [2] and lone(1) == [1]  # nothing reaches it from before the segment
    assert lone(4, 5, 6) == []  # the segment ends: the last token hides three symbols
    assert lone(7, 8, 9) == [9] and lone(8, 9, 10) == []


def test_bits_of_overlapping_tokens_are_bits_of_single_symbols(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", documents=50)
    corpus = build(folder, OverlappingLetters(), validation=0.2)
    config = ObjectiveConfig(MaskedLMConfig(unit="word"))
    source = source_of(corpus, config, "validation")
    for batch in Objective(config, corpus).validation(source, 4096):
        target = batch.targets["masked_lm"]
        assert target.symbols is not None and (target.symbols == 1).all()
        assert 0 < len(target.index) < (batch.ids == 4).sum()
    (single,) = batches(corpus, steps=1)
    assert single.targets["masked_lm"].symbols is None


def test_a_sequence_without_an_ordinary_token_has_no_target(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.letters").write_text("??? ??")
    for unit in ("token", "word"):
        (batch,) = batches(build(tmp_path / "files", validation=0.0), steps=1, unit=unit)
        assert not len(batch.targets["masked_lm"].index)


@pytest.mark.parametrize(
    "wrong", [{"probability": 0.0}, {"validation_probability": 1.5}, {"mask": 0.9, "random": 0.2}, {"mask": -0.1}]
)
def test_shares_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        MaskedLMConfig(**wrong)  # type: ignore[arg-type]
