"""The round trip of benchmarks/roundtrip.py on a few pieces of each kind: what is rebuilt has the source's notes."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def roundtrip(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("roundtrip")


def total(tables: list[dict]) -> Counter:
    counts: Counter = Counter()
    for table in tables:
        counts.update(table["counts"])
    return counts


@pytest.mark.parametrize(
    ("name", "pieces", "kind"),
    [
        ("music/nottingham/ABC_cleaned/jigs.abc", 8, ".musicxml"),
        ("corpus:chorales:2", 2, ".musicxml"),
        ("music/pop909_sample", 3, ".mid"),
    ],
)
def test_pieces_come_back_with_the_same_tokens_and_with_the_notes_that_other_parsers_find_in_the_source(
    roundtrip, shared_data, monkeypatch, tmp_path, name, pieces, kind
):
    monkeypatch.setenv("SEQBERT_CACHE", str(tmp_path))
    if not name.startswith("corpus:"):
        name = str(shared_data / name)
    sources = roundtrip.spread(list(roundtrip.sources_of(name)), pieces)
    found = [roundtrip.one((source, None)) for source in sources]
    counts = total(found)
    assert counts["pieces"] == pieces
    assert counts["decoded and encoded again: same tokens"] == pieces
    assert counts[f"written as {kind} and read again: same tokens"] == pieces
    equal = counts["equal"] + counts["equal on the grid"]
    left_over = sum(table["remainder"].total() for table in found)
    assert equal + left_over == counts["notes in the source"] > 100
    assert equal >= 0.99 * counts["notes in the source"]
    assert counts["of these in the MIDI file"] == counts["notes with a duration"]


def test_a_note_that_is_not_rebuilt_is_counted_by_its_kind(roundtrip):
    quarter, source = Fraction(1), roundtrip.Source(Path("a.mid"), "midi")
    expected = Counter(
        {(Fraction(0), quarter, 60): 2, (Fraction(1, 100), quarter, 62): 1, (quarter, Fraction(0), 64): 1}
    )
    rebuilt = Counter({(Fraction(0), quarter, 60): 1, (Fraction(0), quarter, 62): 1})
    found = {"counts": Counter(), "remainder": Counter()}
    roundtrip.classify(source, expected, rebuilt, None, Path(), found)
    assert found["counts"] == {"equal": 1, "equal on the grid": 1}
    assert found["remainder"] == {"unisons: doubles a note of its part": 1, "grace notes": 1}
