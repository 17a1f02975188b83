"""Records that are damaged are counted, one by one, and cost no other."""

from pathlib import Path

import pytest

from domains.protein import Protein
from seqbert.domain import Report
from seqbert.errors import DataError

ENTRY = '<entry><accession>P{0}</accession><name>N{0}</name><sequence length="6">MKTAYI</sequence>{1}'
GENPEPT = """LOCUS       R{0}           6 aa            linear   BCT 01-JAN-2000
DEFINITION  one.
ACCESSION   R{0}
ORIGIN
        1 mktayi
//
"""


def read(path: Path, text: str | bytes) -> tuple[list[str], Report]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    report = Report()
    return [document.id for document in Protein().read(path, report)], report


def test_an_entry_that_is_not_closed_costs_no_other(tmp_path: Path) -> None:
    entries = [ENTRY.format(1, ""), ENTRY.format(2, "</entry>"), ENTRY.format(3, "</entry>")]
    names, report = read(tmp_path / "a.xml", "<uniprot>" + "\n".join(entries) + "</uniprot>")
    assert names == ["P2", "P3"] and report.skipped_records == 1


def test_a_record_whose_first_line_is_damaged_is_one_skipped_record(tmp_path: Path) -> None:
    text = GENPEPT.format(1) + GENPEPT.format(2).replace("LOCUS", "LOCU") + GENPEPT.format(3)
    names, report = read(tmp_path / "a.gp", text)
    assert names == ["R1", "R3"] and report.skips == {"a record without its first line": 1}


def test_fewer_letters_than_declared_are_a_repair_that_strict_refuses(tmp_path: Path) -> None:
    names, report = read(tmp_path / "a.gp", GENPEPT.format(1).replace("6 aa", "9 aa"))
    assert names == ["R1"] and report.repaired_records == 1
    with pytest.raises(DataError, match=r"a\.gp:1: .*9 are declared, 6 are there"):
        list(Protein().read(tmp_path / "a.gp", Report(strict=True)))


def test_what_stands_behind_the_star_of_a_pir_record_is_told(tmp_path: Path) -> None:
    names, report = read(tmp_path / "a.pir", ">P1;A\none\nMKTAYI*QRQISF\n>P1;B\ntwo\nMKTAYI*\n")
    assert names == ["A", "B"] and report.repaired_records == 1
    assert report.repairs == {"what stands behind the * that ends a PIR record left out": 1}


def test_heads_that_are_not_utf_8_are_told(tmp_path: Path) -> None:
    text = GENPEPT.format(1).replace("one.", "caf\u00e9.").encode("latin-1")
    _, report = read(tmp_path / "a.gp", text)
    assert sum(report.tallies.values()) >= 1
