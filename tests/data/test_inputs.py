import dataclasses
import gzip
import io
import sys
from pathlib import Path

import pytest
from letters import Letters, write_documents

from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.content import describe
from seqbert.data.fetching import fetch, in_files, keep_standard_input
from seqbert.domain import Document, Report
from seqbert.errors import DataError


class Changing(Letters):
    """Tells the report something of every document."""

    def read(self, path: Path, report: Report):  # type: ignore[no-untyped-def]
        for number, document in enumerate(super().read(path, report)):
            report.note("documents met")
            report.tally("letters mended", number, f"{path}:{number}", "the letter x")
            report.largest("largest number", number)
            yield document


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input_is_kept_under_the_name_of_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"abc def\n")
    first = keep_standard_input(tmp_path)
    pipe(monkeypatch, b"abc def\n")
    assert keep_standard_input(tmp_path) == first and first.read_bytes() == b"abc def\n"
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_empty_standard_input_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"")
    with pytest.raises(DataError, match="standard input is empty"):
        in_files(["-"], tmp_path)
    with pytest.raises(DataError, match="only once"):
        in_files(["-", "-"], tmp_path)


def test_a_corpus_from_standard_input_is_that_of_the_file_and_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_documents(tmp_path / "a.letters", documents=40)
    content = (tmp_path / "a.letters").read_bytes()
    folders = []
    for _ in range(2):
        pipe(monkeypatch, content)
        corpus = build_corpus(BuildRequest(Letters(), ["-"]), tmp_path / "cache")
        folders.append(corpus.folder)
    assert folders[0] == folders[1]
    plain = build_corpus(BuildRequest(Letters(), [str(tmp_path / "a.letters")]), tmp_path / "cache")
    assert plain.manifest["content"] == corpus.manifest["content"]


def test_addresses_of_files_folders_and_globs_are_fetched_once(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({f"/bucket/{name}.letters": name.encode() * 3 for name in "ab"} | {"/bucket/.hidden": b"x"})
    said: list[str] = []
    folder = fetch("memory://bucket", tmp_path, said.append)
    assert [path.name for path in folder] == ["a.letters", "b.letters"] and len(said) == 2
    assert fetch("memory://bucket/*.letters", tmp_path, said.append) == folder
    assert fetch("memory://bucket/b.letters", tmp_path, said.append) == folder[1:] and len(said) == 2
    assert folder[0].read_bytes() == b"aaa"
    memory.pipe("/bucket/a.letters", b"other and longer")
    assert fetch("memory://bucket/a.letters", tmp_path)[0].read_bytes() == b"other and longer"


def test_an_address_that_names_nothing_or_needs_a_package_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names nothing"):
        fetch("memory://nowhere/x.fa", tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        fetch("nosuchscheme://x/y", tmp_path)
    with pytest.raises(DataError, match="not installed"):
        fetch("dropbox://x/y.fa", tmp_path)


def test_no_name_of_an_address_leads_out_of_the_cache(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/odd/..%2f..%2fevil name", b"x")
    (path,) = fetch("memory://odd/..%2f..%2fevil name", tmp_path / "cache")
    assert path.is_relative_to(tmp_path / "cache") and "/" not in path.name and not path.name.startswith(".")


def test_strict_makes_every_change_an_error_that_names_the_record(tmp_path: Path) -> None:
    write_documents(tmp_path / "a.letters", documents=3)
    request = BuildRequest(Changing(), [str(tmp_path / "a.letters")])
    corpus = build_corpus(request, tmp_path / "cache")
    assert corpus.report["changed"] == {"letters mended": 3}
    assert corpus.report["noted"] == {"documents met": 3} and corpus.report["largest"] == {"largest number": 2}
    with pytest.raises(DataError, match=r"a\.letters:1: letters mended \(1\): the letter x\. .*strict is true"):
        build_corpus(dataclasses.replace(request, strict=True), tmp_path / "cache")


def test_strict_is_content_with_what_is_clean_and_refuses_files_that_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", documents=30)
    strict = BuildRequest(Letters(), [str(folder)], strict=True)
    build_corpus(strict, tmp_path / "cache")
    (folder / "b.letters").write_text("abc\0def")
    assert build_corpus(dataclasses.replace(strict, strict=False), tmp_path / "cache").report["skipped_files"]
    with pytest.raises(DataError, match="b.letters is binary"):
        build_corpus(strict, tmp_path / "cache")


def test_a_file_without_a_record_is_told_by_what_it_looks_like(tmp_path: Path) -> None:
    class Empty(Letters):
        def read(self, path: Path, report: Report):  # type: ignore[no-untyped-def]
            return (document for document in super().read(path, report) if not path.name.startswith("x"))

    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "x.letters").write_text('{"a": 1}')
    with pytest.raises(DataError, match="looks like JSON"):
        build_corpus(BuildRequest(Empty(), [str(folder / "x.letters")]), tmp_path / "cache")
    write_documents(folder / "a.letters", documents=30)
    report = build_corpus(BuildRequest(Empty(), [str(folder)]), tmp_path / "cache").report
    assert [Path(row["file"]).name for row in report["skipped_files"]] == ["x.letters"] and report["files"] == 1
    assert "looks like JSON" in report["skipped_files"][0]["reason"]


def test_counts_of_skipped_records_reach_the_one_who_waits(tmp_path: Path) -> None:
    class Skipping(Letters):
        def read(self, path: Path, report: Report):  # type: ignore[no-untyped-def]
            report.skipped(f"{path}:0", "too odd")
            yield from super().read(path, report)

    write_documents(tmp_path / "a.letters", documents=30)
    said: list[str] = []
    build_corpus(
        BuildRequest(Skipping(), [str(tmp_path / "a.letters")]), tmp_path / "cache", 1, lambda w, s: said.append(w)
    )
    assert "31 records" in said[-1] and "1 skipped" in said[-1]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"PK\x03\x04....", "a ZIP archive"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b">a\nACGT\n", "FASTA"),
        (b"@r1\nACGT\n+\nIIII\n", "FASTQ"),
        (b"LOCUS       X", "a GenBank file"),
        (gzip.compress(b"x", mtime=0), "gzip within the compression that was taken off"),
        ("naïve text".encode("utf-16"), "UTF-16 text"),
    ],
)
def test_files_are_told_by_their_first_bytes(content: bytes, kind: str) -> None:
    assert describe(content) == kind


def test_a_record_that_is_skipped_after_all_is_not_repaired_too() -> None:
    report = Report()
    report.repaired("a:1", "mended")
    report.skipped("a:1", "too short")
    report.repaired("a:2", "mended")
    report.yielded += 1
    assert report.to_dict()["records"] == {"in": 2, "read": 0, "repaired": 1, "skipped": 1}
    assert report.to_dict()["repaired"] == {"mended": 1}


def test_a_report_is_the_same_after_it_was_written_and_read() -> None:
    report = Report()
    report.note("comments", 2)
    report.largest("error", 0.5)
    report.tally("moved", 3)
    report.repaired("a:1", "mended")
    assert Report.from_json(report.to_json()).to_dict() == report.to_dict()
    other = Report()
    other.largest("error", 0.25)
    other.merge(report)
    assert other.most == {"error": 0.5} and other.notes["comments"] == 2
    assert Document("a", ["b"]).metadata == {}


def test_of_a_fetched_folder_what_the_domain_does_not_read_is_listed(tmp_path: Path) -> None:
    import fsspec

    write_documents(tmp_path / "a.letters", documents=30)
    content = (tmp_path / "a.letters").read_bytes()
    fsspec.filesystem("memory").pipe({"/mixed/a.letters": content, "/mixed/README": b"words"})
    corpus = build_corpus(BuildRequest(Letters(), ["memory://mixed"]), tmp_path / "cache")
    assert corpus.report["files"] == 1
    assert [Path(row["file"]).name for row in corpus.report["skipped_files"]] == ["README"]


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_documents(tmp_path / "elsewhere" / "a.letters", documents=30)
    (tmp_path / "elsewhere" / ".hidden.letters").write_text("x")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    corpus = build_corpus(BuildRequest(Letters(), [str(folder)]), tmp_path / "cache")
    assert corpus.report["files"] == 1 and corpus.report["records"]["read"] == 30
