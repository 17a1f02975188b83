import os
from pathlib import Path

from domains.dna import DNA, DNAOptions
from seqbert.domain import Report

CLEAN = ">a\nACGTACGT\nACGT\n"


def read(folder: Path, fasta: dict[str, str], bed: str, strict: bool = False) -> tuple[list[tuple[str, str]], Report]:
    (folder / "r.bed").write_text(bed)
    domain, report = DNA(DNAOptions(regions=str(folder / "r.bed"))), Report(strict)
    found = []
    for name, text in fasta.items():
        (folder / name).write_text(text)
        found += [(document.id, document.segments[0]) for document in domain.read(folder / name, report)]
    return found, report


def test_no_comment_or_blank_becomes_a_base(tmp_path: Path) -> None:
    for odd in (">a\n;com\nACGT\nACGT\n", ">a\nAC GT\nACGT\n"):
        found, report = read(tmp_path, {"x.fa": odd}, "a\t0\t4\tone\n")
        assert found == [] and report.skipped_records == 1
    assert read(tmp_path, {"x.fa": CLEAN}, "a\t6\t10\tone\n")[0] == [("one", "GTAC")]


def test_regions_over_several_files_are_strict_about_none_of_them(tmp_path: Path) -> None:
    files = {"one.fa": CLEAN, "two.fa": CLEAN.replace(">a", ">b")}
    found, report = read(tmp_path, files, "a\t0\t4\tone\nb\t0\t4\ttwo\n", strict=True)
    assert [name for name, _ in found] == ["one", "two"] and report.skipped_records == 0
    assert report.notes == {"regions on contigs that a file does not have": 2}


def test_an_index_that_is_older_or_of_other_lengths_is_not_believed(tmp_path: Path) -> None:
    genome = {"x.fa": ">a\nACGTACGT\n>b\nACGTACGT\n>c\nACGTACGT\n"}
    (tmp_path / "x.fa").write_text(genome["x.fa"])
    index = tmp_path / "x.fa.fai"
    index.write_text("a\t8\t3\t8\t9\nb\t4\t15\t4\t5\nc\t8\t27\t8\t9\n")
    assert read(tmp_path, genome, "b\t0\t8\tone\n")[0] == [("one", "ACGTACGT")]
    index.write_text("a\t8\t3\t8\t9\nb\t8\t15\t8\t9\nc\t8\t27\t8\t9\n")
    os.utime(index, (1, 1))
    assert read(tmp_path, genome, "c\t0\t8\tone\n")[0] == [("one", "ACGTACGT")]
