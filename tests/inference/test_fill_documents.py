"""Filling bars, words and bases of documents."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from model_runs import write_run

from seqbert.cli import main
from seqbert.domain import Report
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.inference.fill import Filled, fill
from seqbert.inference.hiding import Tokens, parse_stretch
from seqbert.inference.infill import Infiller
from seqbert.inference.trained import Trained

TUNE = """X:1
T:First
M:3/4
L:1/4
K:G
D G B|d2 B|A F D|E F G|A B c|d3|
"""
SENTENCES = ("The old house sleeps by the river.", "A small grey cat walks, and never hears the dog!")


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A masked LM on music that is shown 24 tokens at once."""
    return Trained.of_run(write_run(tmp_path_factory.mktemp("music") / "run", "music"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A masked LM on text whose words are cut into pieces."""
    return Trained.of_run(write_run(tmp_path_factory.mktemp("text") / "run", "text", segments=SENTENCES * 3))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a masked LM on single bases."""
    return write_run(tmp_path_factory.mktemp("bases") / "run", "dna")


@pytest.fixture(scope="module")
def kmers(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A masked LM on overlapping 3-mers."""
    return Trained.of_run(write_run(tmp_path_factory.mktemp("kmers") / "run", "dna", {"tokens": "kmer", "k": 3}))


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def filled(*arguments, **options) -> Filled:
    found = fill(*arguments, **options)
    assert isinstance(found, Filled)
    return found


# Which tokens are hidden


def test_units_symbols_and_tokens_are_counted_from_one_through_the_whole_document(music, tmp_path):
    domain = music.domain
    (document,) = domain.read(write(tmp_path / "tune.abc", TUNE), Report())
    tokens = Tokens.of(document.segments, domain)
    assert len(document.segments) > 1  # of four bars each
    spell = [domain.vocabulary.id_to_token(int(number)) for number in tokens.ids]
    (bars,) = np.nonzero([word == "Bar" for word in spell])
    for number in range(len(bars)):
        edge = bars[number + 1] if number + 1 < len(bars) else len(spell)
        hidden = tokens.hidden([parse_stretch(f"bar:{number + 1}")])
        assert hidden.tolist() == list(range(bars[number], edge))
    pitches = [place for place, word in enumerate(spell) if word.startswith("Pitch")]
    assert tokens.hidden([parse_stretch("note:3-4"), parse_stretch("token:1")]).tolist() == [0, pitches[2], pitches[3]]


@pytest.mark.parametrize("wrong", ["bar", "bar:0", "bar:5-3", "bar:x", ":3", "bar 3"])
def test_a_stretch_that_is_not_understood_is_refused(wrong):
    with pytest.raises(ConfigError, match="counted from 1"):
        parse_stretch(wrong)


# Files


def test_a_bar_of_a_tune_is_filled_and_the_rest_stays_as_it_was(music, tmp_path):
    tune = write(tmp_path / "tune.abc", TUNE)
    found = filled(music, tune, mask="bar:2", output=tmp_path / "filled.musicxml")
    (before,) = music.domain.read(tune, Report())
    old, new = " ".join(before.segments).split(" Bar "), found.text.split(" Bar ")
    assert len(new) == len(old) == 6
    assert [bar for place, bar in enumerate(new) if place != 1] == [bar for place, bar in enumerate(old) if place != 1]
    assert len(new[1].split()) == len(old[1].split())
    assert " ".join(place.was for place in found.places) == old[1], "the word that begins the bar stays"
    assert " ".join(place.token for place in found.places) == new[1]
    assert (tmp_path / "filled.musicxml").read_bytes().startswith(b"<?xml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filled.musicxml", "tune.abc"]


def test_a_word_is_filled_with_as_many_pieces_of_one_word_and_the_text_stays_to_the_letter(text, tmp_path):
    document = write(tmp_path / "a.txt", " ".join(SENTENCES))
    (before,) = text.domain.read(document, Report())
    whole = " ".join(before.segments)
    words = whole.split()
    place = words.index("walks,") + 2  # the full stop of the first sentence is a word of its own
    found = filled(text, document, mask=[f"word:{place}"])
    assert "".join(one.was.removeprefix("##") for one in found.places) == "walks"
    new = found.text.split()
    assert len(new) == len(words)
    changed = [number for number, (a, b) in enumerate(zip(words, new, strict=True)) if a != b]
    assert changed in ([words.index("walks,")], [])
    tokens = [one.token for one in found.places]
    assert not tokens[0].startswith("##") and all(token.startswith("##") for token in tokens[1:])


def test_bases_are_filled_where_tokens_overlap(kmers):
    sequence = "ACGTTGCAACGTAGCTAGGT" * 3  # longer than what is shown at once
    stretches = {"base:31-33": [30, 31, 32], "base:59-60": [58, 59], "token:5": [4], "token:58": [57, 58, 59]}
    for mask, hidden in stretches.items():
        found = filled(kmers, sequence, mask=mask)
        assert [one.place - 1 for one in found.places] == hidden
        assert [one.was for one in found.places] == [sequence[place] for place in hidden]
        kept = [letter for place, letter in enumerate(found.text) if place not in hidden]
        assert kept == [letter for place, letter in enumerate(sequence) if place not in hidden]
        assert all(one.token in "ACGT" for one in found.places)
        assert all(sum(filler.probability for filler in one.fillers) == pytest.approx(1) for one in found.places)


def test_what_stood_in_a_hidden_place_does_not_matter(kmers, bases):
    trained = Trained.of_run(bases)
    for model in (kmers, trained):
        texts = {
            filled(model, f"ACGTTGCAACG{middle}GCTAGGTACGTTGACTAC", mask="base:12-14").text
            for middle in ("TAC", "GGG", "CTT")
        }
        assert len(texts) == 1


# The order


def test_each_token_is_chosen_in_view_of_those_before_it_the_surest_first(bases):
    trained = Trained.of_run(bases)
    ids = trained.domain.encode(["ACGTTGCAACGTAGC"]).ids.astype(np.int64)
    hidden = np.array([4, 5, 9])
    infiller = Infiller(trained, 24)
    _, choices = infiller.fill(ids, hidden)
    (mask,) = trained.token_ids("[MASK]")
    shown, left = ids.copy(), hidden.tolist()
    shown[hidden] = mask
    expected = {}
    while left:
        rows = infiller._probabilities(shown, 0, np.array(left))
        number = int(rows.max(axis=1).argmax())
        place = left.pop(number)
        shown[place] = rows[number].argmax()
        expected[place] = (trained.domain.vocabulary.id_to_token(int(shown[place])), rows[number].max())
    assert {one.place: (one.token, one.probability) for one in choices} == expected


def test_a_long_stretch_of_a_long_document_is_filled_in_parts_with_context_on_both_sides(bases):
    trained = Trained.of_run(bases)  # shown 22 tokens
    text = "ACGTTGCAACGTAGCTAGGT" * 10
    found = filled(trained, text, mask=["base:60-99", "base:3"])
    assert [one.place for one in found.places] == [3, *range(60, 100)]
    assert len(found.text) == len(text) and found.text[99:] == text[99:] and found.text[3:59] == text[3:59]
    infiller = Infiller(trained, 24)
    parts = list(infiller._parts(np.arange(59, 99), len(text)))
    for part in parts:
        start = infiller._start(part, len(text))
        assert start < part[0] and part[-1] < start + 21  # there is something on both sides


def test_draws_depend_on_the_seed_alone(bases):
    trained = Trained.of_run(bases)
    draws = [filled(trained, "ACGT" * 10, mask="base:5-30", temperature=2.0, seed=seed).text for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


# [MASK] in a sequence, written to a file


def test_masks_of_a_sequence_are_filled_and_written(bases, kmers, tmp_path):
    for trained in (Trained.of_run(bases), kmers):
        found = filled(trained, "ACGTTGCA[MASK][MASK]CGTAGCTA[MASK]", output=tmp_path / "out.fa")
        assert len(found.text) == 19
        assert found.text[:8] == "ACGTTGCA" and found.text[10:18] == "CGTAGCTA"
        assert found.text in (tmp_path / "out.fa").read_text(encoding="utf-8").replace("\n", "")
        assert [one.was for one in found.places] == [None] * 3


# The command, and what goes wrong


def test_the_command_prints_what_it_put_in_and_where_the_document_is(bases, tmp_path, capsys):
    genome = write(tmp_path / "g.fa", ">one\nACGTTGCAACGTAGCTAGGT\n>two\nTTGACCATTG\n")
    out = tmp_path / "out.fa"
    assert (
        main(
            ["fill", str(bases), str(genome), "--mask", "base:3", "base:9-10", "--record", "two", "--output", str(out)]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "two: 3 places filled" in shown and str(out) in shown.replace("\n", "")
    assert main(["fill", str(bases), str(genome), "--mask", "base:3", "--record", "1", "--json", "--top", "2"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["id"] == "one" and len(tree["places"][0]["fillers"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g.fa", "--mask", "base:3"], r'holds several documents \("one", "two"\).*--record'),
        (["g.fa", "--mask", "base:3", "--record", "three"], 'no document "three": it holds 2'),
        (["g.fa", "--mask", "base:30", "--record", "1"], "has 20 bases, and they are counted from 1"),
        (["g.fa", "--mask", "residue:3", "--record", "1"], 'no unit "residue": it has .*base, token'),
        (["h.fa", "--mask", "base:3"], 'There is no file "h.fa"'),
        (["nowhere/h", "--mask", "base:3"], 'There is no file "nowhere/h"'),
        ([".", "--mask", "base:3"], "is a folder"),
        (["g.fa"], "is a file: name what of it"),
        (["ACGT"], "has no .MASK."),
        (["ACGT", "--output", "out.fa"], "has no .MASK."),
        (["ACGT", "--mask", "base:1", "--record", "1"], "this is a sequence"),
        (["g.fa", "--mask", "base:3", "--record", "1", "--output", "away/out.fa"], "There is no folder"),
        (["g.fa", "--mask", "base:3", "--record", "1", "--output", "g.fa"], "is the file that is read"),
        (["ACGT", "--mask", "base:2", "--temperature", "-1"], "temperature is -1"),
        (["ACGT", "--mask", "base:2", "--max_length", "9999"], "max_length is 9999"),
        (["ACGT", "--mask", "base"], "counted from 1"),
        (["e.fa", "--mask", "base:1"], "e.fa"),
    ],
)
def test_what_cannot_be_filled_is_an_error_that_says_why(bases, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "g.fa", ">one\nACGTTGCAACGTAGCTAGGT\n>two\nTTGACCATTG\n")
    write(tmp_path / "e.fa", "")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["fill", str(bases), *arguments]) == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_causal_model_cannot_fill(tmp_path):
    run = write_run(tmp_path / "run", "dna", causal=True)
    with pytest.raises(CheckpointError, match="causal"):
        fill(run, "ACGT", mask="base:2")
    with pytest.raises(CheckpointError, match="causal"):
        fill(run, "AC[MASK]T")


def test_a_text_that_is_shorter_than_a_token_cannot_be_filled(kmers):
    with pytest.raises(DataError, match="3 symbols long"):
        fill(kmers, "AC", mask="base:1")
