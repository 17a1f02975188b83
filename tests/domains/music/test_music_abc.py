"""ABC: what the standard 2.1 says about a tune, read as pitches, onsets and durations."""

from pathlib import Path

import pytest

from domains.music import Music
from domains.music.piece import parse
from seqbert.domain import Document, Report
from seqbert.errors import DataError

HEADER = "X:1\nT:Test\nM:4/4\nL:1/8\n"


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str, report: Report | None = None) -> list[Document]:
        path = tmp_path / "tune.abc"
        path.write_text(text, encoding="utf-8")
        return list(Music().read(path, report or Report()))

    return read


@pytest.fixture
def notes(read):
    """The notes of the first voice of a tune as (onset, duration, pitch); an eighth is 12 ticks."""

    def notes(body: str, header: str = HEADER + "K:C\n") -> list[tuple[int, int, int]]:
        (document,) = read(header + body + "\n")
        return [tuple(note)[:3] for note in parse(" ".join(document.segments)).parts[0]]

    return notes


def pitches(notes: list[tuple[int, int, int]]) -> list[int]:
    return [pitch for _, _, pitch in notes]


def test_row95_an_accidental_holds_to_the_bars_end(notes):
    assert pitches(notes("^g f g|g", HEADER + "K:D\n")) == [80, 78, 80, 79]


def test_row95_a_chain_of_ties_is_one_note(notes):
    assert notes("c-c-c") == [(0, 36, 72)]


def test_row95_a_tuplet_inside_a_slur_keeps_its_rhythm(notes):
    assert [duration for _, duration, _ in notes("((3abc d) (3(abc) d")] == [8, 8, 8, 12, 8, 8, 8, 12]


def test_a_tie_over_a_bar_line_keeps_its_accidental(notes):
    assert notes("^f8-|f2 f2") == [(0, 120, 78), (120, 24, 77)]


def test_a_chord_ties_note_by_note(notes):
    assert notes("[c2e2g2]-[c2e2a2]") == [(0, 48, 72), (0, 48, 76), (0, 24, 79), (24, 24, 81)]


def test_accidentals_inside_a_chord_hold_to_the_bars_end(notes):
    assert pitches(notes("[^ce]c|c")) == [73, 76, 73, 72]


@pytest.mark.parametrize(
    ("written", "durations"),
    [
        ("a>b", [18, 6]),
        ("a<b", [6, 18]),
        ("a>>b", [21, 3]),
        ("a.>b", [18, 6]),
        ("a2 a/ a// a3/2", [24, 6, 3, 18]),
        ("(2ab (4abcd", [18, 18, 9, 9, 9, 9]),
        ("(3:2:2a4b2 c", [32, 16, 12]),
    ],
)
def test_rhythm_is_that_of_the_standard(notes, written, durations):
    assert [duration for _, duration, _ in notes(written)] == durations


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("D", [66, 61]),
        ("Dm", [65, 60]),
        ("D dorian", [65, 60]),
        ("Ador", [66, 60]),
        ("Bb", [65, 60]),
        ("none", [65, 60]),
        ("Hp", [66, 61]),
        ("C ^f", [66, 60]),
    ],
)
def test_a_key_alters_its_notes(notes, key, expected):
    assert pitches(notes("FC", HEADER + f"K:{key}\n")) == expected


def test_a_field_inside_a_line_changes_key_and_meter(read):
    (document,) = read(HEADER + "K:C\nf8|[M:3/4][K:G]f6|\n")
    assert document.segments == [
        "Bar Numerator_4 Denominator_4 KeySignature_0 Part_0 Position_0 Pitch_77 Duration_96 "
        "Bar Numerator_3 Denominator_4 KeySignature_1 Part_0 Position_0 Pitch_78 Duration_72"
    ]


def test_a_pick_up_bar_says_its_length(read):
    (document,) = read(HEADER + "K:C\nG|c8|\n")
    assert document.segments == [
        "Bar Numerator_4 Denominator_4 Length_12 KeySignature_0 Part_0 Position_0 Pitch_67 Duration_12 "
        "Bar Part_0 Position_0 Pitch_72 Duration_96"
    ]


def test_grace_notes_have_no_duration_and_come_before_their_note(notes):
    assert notes("{ga}b2 c2") == [(0, 0, 79), (0, 0, 81), (0, 24, 83), (24, 24, 72)]


def test_repeats_are_not_unfolded(notes):
    assert pitches(notes("|:c8|1 d8:|2 e8|]")) == [72, 74, 76]


def test_rests_of_several_bars_and_invisible_rests_take_their_time(notes):
    assert notes("c8|Z2|x4 d4|") == [(0, 96, 72), (336, 48, 74)]


def test_chord_symbols_and_annotations_are_no_notes(notes):
    assert pitches(notes('"Am"a "^slow"b !trill!c +fermata+d y2 e')) == [81, 83, 72, 74, 76]


def test_voices_are_parts_of_the_same_bars(read):
    (document,) = read(HEADER + "V:1\nV:2 clef=bass-8\nK:C\n[V:1] c8|d8|\n[V:2] C8|D8|\n")
    piece = parse(" ".join(document.segments))
    assert [pitches([tuple(n)[:3] for n in part]) for part in piece.parts] == [[72, 74], [48, 50]]
    assert len(piece.bars) == 2


def test_an_overlay_sounds_with_its_bar(notes):
    assert notes("c8 & e4g4|d8") == [(0, 96, 72), (0, 48, 76), (48, 48, 79), (96, 96, 74)]


def test_a_tune_without_bar_lines_is_cut_by_its_meter(read):
    (document,) = read(HEADER + "K:C\nc8d8e8\n")
    assert parse(document.segments[0]).bars[2][:2] == (192, 96)


def test_a_book_gives_a_document_a_tune_with_the_fields_of_its_header(read):
    documents = read("M:6/8\nC:Trad.\n\nX:7\nT:The One\nK:C\nc6|\n\nX:9\nT:The Other\nK:G\nd6|\n")
    assert [document.id for document in documents] == ["7 The One", "9 The Other"]
    assert documents[1].metadata == {"title": "The Other", "composer": "Trad.", "key": "G", "meter": "6/8"}
    assert all(document.segments[0].startswith("Bar Numerator_6 Denominator_8") for document in documents)


def test_a_bad_tune_is_skipped_with_its_number_and_the_rest_is_read(read):
    report = Report()
    documents = read("X:1\nT:a\nM:4/4\nK:C\nc4|\n\nX:2\nno key here\n\nX:3\nK:C\n\nX:4\nK:G\nd4|\n", report)
    assert [document.id for document in documents] == ["1 a", "4"]
    assert report.skips == {"not ABC: no K: field": 1, "no notes": 1}
    assert [example[0].rpartition("tune.abc:")[2] for example in report.examples.values()] == ["2", "3"]


def test_text_behind_a_tune_is_not_played(read):
    report = Report()
    (document,) = read(HEADER + "K:C\nc8|\n\nA bad cafe decade\n", report)
    assert len(parse(document.segments[0]).parts[0]) == 1
    assert report.repaired_records == 1


@pytest.mark.parametrize(
    "body",
    [
        "c99999999999",
        "Z99999",
        "[M:1/4096]c8",
        "c,,,,,,,,,,,,",
        "c" * 2**21,
        "(0abc c/0",
        "[ceg",
        "{",
        "(3",
        "-",
    ],
)
def test_absurd_tunes_are_skipped_or_read_but_never_crash(read, body):
    report = Report()
    documents = read(HEADER + f"K:C\n{body}\n", report)
    assert len(documents) + report.skipped_records == 1


def test_a_text_without_tunes_is_an_error_that_says_what_it_looks_like(read):
    with pytest.raises(DataError, match=r"tune\.abc: holds no score; it looks like plain text\."):
        read("Nothing to play.\n")


def test_a_text_whose_tunes_never_begin_is_an_error_that_says_what_a_tune_is(read):
    with pytest.raises(DataError, match=r"tune\.abc: no tune in ABC: a tune begins with an X: field"):
        read("T:A title\nM:4/4\nand then nothing\n")


def test_nottingham_is_read_whole_and_agrees_with_music21(shared_data):
    """An independent reader: music21, on tunes without the accidentals that it lets end with their note."""
    from music21 import abcFormat

    from domains.music import abc_notation, scores

    book = (shared_data / "music" / "nottingham" / "ABC_cleaned" / "jigs.abc").read_text("latin-1")
    tunes = list(abc_notation.tunes(book))
    assert len(tunes) == 340
    compared = 0
    for tune in tunes[:40]:
        body = tune.text[tune.text.index("K:") :]
        if any(sign in body for sign in "^_="):
            continue
        with scores.quiet():
            theirs = abcFormat.translate.abcToStreamScore(abcFormat.ABCFile().readstr(tune.text))
        report = Report()
        expected = scores.draft_of(theirs, report).settle("", report)
        ours = abc_notation.read_tune(tune.text)[0].settle("", report)
        assert ours.parts == expected.parts
        compared += 1
    assert compared > 20
