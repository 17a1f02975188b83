from pathlib import Path

from domains.music import Music
from seqbert.domain import Report

GOOD = "X:2\nM:4/4\nL:1/4\nK:C\nCDEF|\n"


def test_braces_within_braces_cost_no_tune_of_a_book(tmp_path: Path) -> None:
    path, report = tmp_path / "book.abc", Report()
    path.write_text("X:1\nM:4/4\nL:1/4\nK:C\n{{|CDEF|\n\n" + GOOD)
    assert [document.id for document in Music().read(path, report)][-1] == "2"
    counts = report.to_dict()["records"]
    assert report.skipped_records <= 1 and counts["skipped"] == report.skipped_records


def test_notes_of_negative_length_are_skipped_and_never_become_unknown_words(tmp_path: Path) -> None:
    path, report = tmp_path / "a.musicxml", Report()
    notes = "".join(
        f"<note><pitch><step>{step}</step><octave>4</octave></pitch><duration>{length}</duration></note>"
        for step, length in (("C", 1), ("D", -5), ("E", 1))
    )
    path.write_text(
        '<score-partwise version="3.1"><part-list><score-part id="P1"><part-name>x</part-name></score-part></part-list>'
        f'<part id="P1"><measure number="1"><attributes><divisions>1</divisions></attributes>{notes}</measure></part>'
        "</score-partwise>"
    )
    domain = Music()
    domain.use(domain.tokenizer([], None))
    texts = [segment for document in domain.read(path, report) for segment in document.segments]
    unknown = domain.vocabulary.token_to_id("[UNK]")
    assert unknown not in domain.encode(texts).ids and (texts or report.skipped_records == 1)
