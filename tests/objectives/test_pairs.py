import random
from pathlib import Path

import numpy as np
import pytest
from letters import build, objective_and_source, source_of, write_documents

from seqbert.data.corpus import Corpus
from seqbert.errors import TrainingError
from seqbert.objectives import ObjectiveConfig
from seqbert.objectives.next_sentence import NextSentence
from seqbert.objectives.pairs import PairDrawer
from seqbert.objectives.sequences import NO_PAIR


def corpus_of(tmp_path: Path, documents: int, segments: tuple[int, int]) -> Corpus:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", documents, segments)
    return build(folder, validation=0.0)


def pairs(corpus: Corpus, kind: str, steps: int = 20, max_length: int = 96):  # type: ignore[no-untyped-def]
    """The places of the two parts of each pair in the store, and the label."""
    objective, source = objective_and_source(corpus, ObjectiveConfig(pair=kind), max_length, 4096)  # type: ignore[arg-type]
    assert objective.pair is not None
    rows = []
    for step in range(steps):
        assert max(objective.examples(source, step).lengths) <= max_length
        drawn = PairDrawer(source, source.max_length).draw(source.step(step), objective.pair)
        places = np.stack([drawn.start, drawn.stop], axis=2).tolist()
        two = (drawn.parts == 2).tolist()
        for (first, second), is_pair, label in zip(places, two, drawn.label.tolist(), strict=True):
            rows.append((tuple(first), tuple(second), label) if is_pair else (tuple(first), label))
    return source.split, [row for row in rows if len(row) == 3]


def document_of(split, place: int) -> int:  # type: ignore[no-untyped-def]
    starts = split.offset[split.first_segment]
    return int(np.searchsorted(starts, place, side="right")) - 1


def test_row56_a_false_next_part_is_never_from_the_same_document_and_half_are_false(tmp_path: Path) -> None:
    split, drawn = pairs(corpus_of(tmp_path, 2, (30, 40)), "next_sentence", steps=120)
    assert len(drawn) > 5000
    for (first, _), (second, _), label in drawn:
        assert (document_of(split, first) != document_of(split, second)) == (label == 1)
    assert abs(np.mean([label for _, _, label in drawn]) - 0.5) < 0.03


def test_row56_one_document_is_refused_for_next_sentence(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 1, (30, 30))
    with pytest.raises(TrainingError, match="only one training document"):
        objective_and_source(corpus, ObjectiveConfig(pair="next_sentence"))


def test_row58_documents_of_one_segment_are_refused_with_the_likely_cause(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 50, (1, 1))
    with pytest.raises(TrainingError, match="blank line"):
        objective_and_source(corpus, ObjectiveConfig(pair="next_sentence"))


def test_a_true_next_part_follows_the_first_at_a_segment_boundary(tmp_path: Path) -> None:
    split, drawn = pairs(corpus_of(tmp_path, 20, (10, 20)), "next_sentence")
    boundaries = set(split.offset.tolist())
    true = [(first, second) for first, second, label in drawn if label == 0]
    whole = [pair for pair in true if pair[0][1] == pair[1][0]]
    assert len(whole) > 0.9 * len(true)  # the rest was cut to fit
    assert all(second[0] in boundaries for _, second in whole)


def test_pairs_fill_the_sequence_with_whole_segments(tmp_path: Path) -> None:
    split, drawn = pairs(corpus_of(tmp_path, 40, (30, 40)), "sentence_order", max_length=128)
    lengths = [sum(stop - start for start, stop in row[:2]) for row in drawn]
    longest_segment = int(split.length.max())
    assert np.mean([length > 125 - longest_segment for length in lengths]) > 0.8
    assert max(lengths) <= 125


def test_sentence_order_swaps_half_of_the_neighbours(tmp_path: Path) -> None:
    _, drawn = pairs(corpus_of(tmp_path, 20, (10, 20)), "sentence_order")
    for (first, _), (second, _), label in drawn:
        assert (first > second) == (label == 1)
    assert abs(np.mean([label for _, _, label in drawn]) - 0.5) < 0.05


def test_a_document_of_one_segment_among_others_trains_without_a_pair_label(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", 30, (1, 1))
    write_documents(folder / "b.letters", 30, (5, 9), seed=1)
    objective, source = objective_and_source(build(folder, validation=0.0), ObjectiveConfig(pair="next_sentence"))
    batch = objective.examples(source, 0)
    assert 0 < len(batch.targets["next_sentence"].index) < len(batch.lengths)


def test_segment_ids_tell_the_parts_apart(tmp_path: Path) -> None:
    objective, source = objective_and_source(corpus_of(tmp_path, 20, (8, 9)), ObjectiveConfig(pair="next_sentence"))
    batch = objective.examples(source, 0)
    starts, stops = batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist()
    for start, stop in zip(starts, stops, strict=True):
        separators = (batch.ids[start:stop] == 3).nonzero().squeeze(1).tolist()
        first_part = separators[0] + 1
        assert batch.segment_ids[start:stop].tolist() == [0] * first_part + [1] * (stop - start - first_part)


def test_a_validation_part_of_one_document_has_pairs_without_a_label(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 1, (30, 30))
    drawer = PairDrawer(source_of(corpus, ObjectiveConfig(), "train"), 32)
    drawn = drawer.draw(drawer.source.plan.sequential(20), NextSentence())
    assert set(drawn.label.tolist()) == {NO_PAIR}


def test_segments_longer_than_a_sequence_are_seen_from_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    draw = random.Random(0)
    lines = ["\n".join("".join(draw.choices("abcdefghij", k=1000)) for _ in range(2)) for _ in range(4)]
    (folder / "a.letters").write_text("\n\n".join(lines))
    corpus = build(folder, validation=0.0)
    _, drawn = pairs(corpus, "sentence_order", steps=90, max_length=64)
    seen = np.zeros(corpus.manifest["tokens"], bool)
    for first, second, _ in drawn:
        seen[slice(*first)] = seen[slice(*second)] = True
    assert seen.mean() > 0.85  # by their beginnings and ends alone it would be 0.1
