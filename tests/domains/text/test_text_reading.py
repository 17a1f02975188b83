import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys

import pyarrow
import pytest

from domains.text import Text
from domains.text.domain import TextOptions
from seqbert.domain import Report
from seqbert.errors import DataError


def read(path, report=None, **options):
    return list(Text(TextOptions(**options)).read(path, report or Report()))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_blank_lines_separate_documents_and_line_breaks_are_spaces(tmp_path):
    path = write(tmp_path / "a.txt", "Dr. Smith came\nhome. He slept.\n \n\t\nNext one.\n")
    first, second = read(path)
    assert first.segments == ["dr. smith came home.", "he slept."]
    assert second.segments == ["next one."]
    assert second.source == f"{path}:5"
    assert first.id != second.id


def test_a_sentence_per_line_keeps_lines(tmp_path):
    path = write(tmp_path / "a.txt", "One. Two.\nThree\n\nFour\n")
    assert [d.segments for d in read(path, sentence_per_line=True)] == [["one. two.", "three"], ["four"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_all_systems_read_alike(tmp_path, end):
    path = write(tmp_path / "a.txt", end.join(["one", "two", "", "three", ""]))
    assert [d.segments for d in read(path)] == [["one two"], ["three"]]


def test_markdown_loses_its_markup_and_nothing_else(tmp_path):
    markdown = """---
title: preamble
---
# A *Heading*. With two parts

Some **bold** [link](http://example.org) text,
`code` &amp; ![a picture](x.png). Second sentence.<br>Third.

    indented verse

* item <b>one</b>

| x | y |
|---|---|
| 1 | 2 |

<div>A <i>block</i><script>no()</script></div>
"""
    (document,) = read(write(tmp_path / "a.md", markdown), lowercase=False)
    assert document.segments == [
        "A Heading. With two parts",
        "Some bold link text, code & a picture.",
        "Second sentence.",
        "Third.",
        "indented verse",
        "item one",
        "x y",
        "1 2",
        "A block",
    ]


def test_json_lines_hold_a_text_or_sentences_and_metadata(tmp_path):
    records = [
        {"id": "x", "body": "One. Two.\n\nThree", "year": 1999, "tags": ["a"], "author": "Ann"},
        {"body": ["A b. C d.", "E f"]},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records)))
    first, second = read(path, text_field="body")
    assert first.segments == ["one.", "two.", "three"]
    assert (first.id, first.metadata) == ("x", {"year": "1999", "author": "Ann"})
    assert second.segments == ["a b. c d.", "e f"]
    assert second.source == f"{path}:2"


def test_bad_json_lines_are_skipped_with_their_reasons(tmp_path):
    lines = ['{"text": "good"}', "{broken", "[1]", '{"other": 1}', '{"text": 5}', '{"text": " "}', ""]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    report = Report()
    assert [d.segments for d in read(path, report)] == [["good"]]
    assert report.skipped_records == 5
    assert report.examples["the line is not valid JSON"] == [f"{path}:2"]


def test_halves_of_surrogate_pairs_are_repaired(tmp_path):
    report = Report()
    (document,) = read(write(tmp_path / "a.jsonl", '{"text": "a \\ud83d b"}'), report)
    assert document.segments == ["a \ufffd b"]
    assert report.repaired_records == 1


def test_a_json_file_without_the_field_names_the_fields_it_has(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"txt": "a"}\n{"txt": "b"}\n')
    with pytest.raises(DataError, match=r'no field "text": it has txt.*Did you mean "txt"'):
        read(path)


def compressed_zstd(content):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", compressed_zstd)],
)
def test_compressed_files_are_read_to_the_last_member_or_refused(tmp_path, ending, compress):
    whole = compress(b"one\n\n") + compress(b"two\n" * 1000)
    path = write(tmp_path / f"a.txt{ending}", whole)
    assert Text().reads(path)
    assert len(read(path)) == 2
    with pytest.raises(DataError, match=f"cut.txt{ending}"):
        read(write(tmp_path / f"cut.txt{ending}", whole[:-5]))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl"])
def test_what_is_not_utf8_text_is_refused_with_file_and_line(tmp_path, name):
    with pytest.raises(DataError, match=f"{name}, line 2, is not UTF-8"):
        read(write(tmp_path / name, b'{"text": "ok"}\n"caf\xe9"\n'))
    with pytest.raises(DataError, match=f"{name} holds NUL"):
        read(write(tmp_path / name, b"\x7fELF\x00\x01"))
    with pytest.raises(DataError, match=f"{name}, line 5001, holds NUL"):
        read(write(tmp_path / name, b'{"text": "ok"}\n' * 5000 + b"\0"))
    with pytest.raises(DataError, match="UTF-16"):
        read(write(tmp_path / name, "hello".encode("utf-16")))


def test_files_that_are_missing_or_of_another_format_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt"):
        read(tmp_path / "none.txt")
    with pytest.raises(DataError, match=r"a\.pdf looks like a PDF document"):
        read(write(tmp_path / "a.pdf", b"%PDF"))
    assert not Text().reads(tmp_path / "a.pdf")


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl"])
def test_an_empty_file_is_told_to_the_report_and_one_without_a_document_is_refused(tmp_path, name):
    report = Report()
    assert read(write(tmp_path / name, ""), report) == []
    assert report.skipped_records == 1
    with pytest.raises(DataError, match=f"{name} holds no document.*it looks like blank lines"):
        read(write(tmp_path / name, "\n\n"))


def test_row36_text_is_utf8_whatever_the_locale_and_a_byte_order_mark_is_no_text(tmp_path):
    plain = write(tmp_path / "plain.txt", "–é漢 one")
    marked = write(tmp_path / "marked.txt", b"\xef\xbb\xbf" + "–é漢 one".encode())
    script = (
        "import sys; from pathlib import Path; from domains.text import Text; from seqbert.domain import Report\n"
        "a, b = ([d.segments for d in Text().read(Path(p), Report())] for p in sys.argv[1:])\n"
        "assert a == b == [['\\u2013\\u00e9\\u6f22 one']], (a, b)"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", script, plain, marked], env=environment, check=True)


def test_the_sample_has_the_topics_of_the_reference_without_its_underlines():
    sample = Text().sample()
    documents = list(sample.documents())
    assert documents == list(sample.documents())
    assert len(documents) > 70
    assert len({document.id for document in documents}) == len(documents)
    (topic,) = [document for document in documents if document.id == "assert"]
    assert topic.segments[0] == 'the "assert" statement'
    assert not any(set(segment) <= set("*=-~^ ") for d in documents for segment in d.segments if len(segment) > 2)


def test_books_become_documents_of_sentences(shared_data):
    (path,) = (shared_data / "text" / "corpus_classic_books" / "A.W. Tozer").glob("*.md")
    (document,) = read(path)
    assert document.segments[:4] == [
        "title: the pursuit of god",
        "author: a.w. tozer",
        "year: 1948",
        "i following hard after god",
    ]
    lengths = [len(segment) for segment in document.segments]
    assert 60 < sum(lengths) / len(lengths) < 150
