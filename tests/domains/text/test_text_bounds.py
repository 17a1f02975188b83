from pathlib import Path

from domains.text import Text
from domains.text.lines import LONGEST_LINE
from seqbert.domain import Report


def test_a_page_in_one_block_that_never_ends_is_read_in_pieces_and_nothing_is_skipped(tmp_path: Path) -> None:
    path, report = tmp_path / "page.html", Report()
    words = "one two three four five six seven eight nine ten. "
    path.write_text("<html><body><p>" + "\n".join([words * 20] * (3 * LONGEST_LINE // (20 * len(words)))))
    documents = list(Text().read(path, report))
    assert report.skipped_records == 0
    assert sum(len(segment) for document in documents for segment in document.segments) > 2.9 * LONGEST_LINE


def test_plain_ascii_has_the_canonical_form_of_the_normalizer() -> None:
    for lowercase in (True, False):
        domain = Text(Text.Options(lowercase=lowercase))
        for text in ("  A plain   Line. ", "x", "", " ~!@#$%^&*()_+ `1234 ", "The END"):
            assert domain.canonical(text) == domain._canonical_form.normalize_str(text)
