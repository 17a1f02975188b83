import gzip
from collections import Counter
from itertools import product

import pytest
from Bio.Data import CodonTable

from domains.dna import DNA
from domains.dna.tables import degeneracy
from seqbert.domain import Report
from seqbert.errors import DataError

SPLICE = """EI,    ATRINS-DONOR-521,               CCAGCTGCATCACAGG
IE,    HUMNMYCA-ACCEPTOR-1039,         CCAGCTGCNTCRCAGG

N,     ATRINS-NEG-1,     GGGGCTGCGTTGCTGG
N,     ATRINS-NEG-1,     GGGGCTGCGTTGCTGA
"""


def examples(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    report = Report()
    found = DNA().examples(path, report)
    return None if found is None else list(found), report


def test_the_words_of_dna_are_its_bases():
    assert DNA().words("ACG").tolist() == [[0, 1], [1, 2], [2, 3]]
    assert DNA().words("").shape == (0, 2)


def test_splice_junctions_are_read_without_their_padding(tmp_path):
    found, report = examples(tmp_path / "splice.data", SPLICE)
    assert [(e.label, e.sequences[0]) for e in found] == [
        ("EI", "CCAGCTGCATCACAGG"),
        ("IE", "CCAGCTGCNTCRCAGG"),
        ("N", "GGGGCTGCGTTGCTGG"),
        ("N", "GGGGCTGCGTTGCTGA"),
    ]
    assert [e.source.rpartition(":")[2] for e in found] == ["1", "2", "4", "5"]
    assert [e.id for e in found][2:] == ["ATRINS-NEG-1", "ATRINS-NEG-1#5"]
    assert report.skipped_records == 0


def test_a_row_in_another_format_is_skipped_and_told(tmp_path):
    found, report = examples(tmp_path / "splice.data", SPLICE + "EI, HUMAN, 12345\nEI, HUMAN\n")
    assert len(found) == 4
    assert report.skipped_records == 2
    assert list(report.examples.values()) == [[f"{tmp_path}/splice.data:6", f"{tmp_path}/splice.data:7"]]


@pytest.mark.parametrize(
    "row", ["+,S10,\t\ttactagcaatacgctt", "7,t,a,c,t,a,g,c,a,a,t,a,c,g,c,t,t,+"], ids=["as published", "in columns"]
)
def test_promoters_are_read_in_both_of_their_layouts(tmp_path, row):
    found, _ = examples(tmp_path / "promoters.data", row + "\r\n")
    assert [(e.label, e.sequences) for e in found] == [("+", ("TACTAGCAATACGCTT",))]


def test_a_compressed_file_is_read_as_what_it_holds(tmp_path):
    found, _ = examples(tmp_path / "splice.data.gz", gzip.compress(SPLICE.encode()))
    assert len(found) == 4


@pytest.mark.parametrize(
    "content",
    ["", "\n\n", ">EI\nACGT\n", "sequence,label\nACGT,1\n", "EI,ACGT\n", "id,text,+\n", b"\0\x01\xff" * 99],
    ids=["empty", "blank", "FASTA", "CSV with a header", "two columns", "other text", "binary"],
)
def test_other_files_are_left_to_the_readers_of_tables(tmp_path, content):
    assert examples(tmp_path / "x.data", content)[0] is None


def test_a_damaged_compressed_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DataError, match=r"x\.data\.gz"):
        examples(tmp_path / "x.data.gz", gzip.compress(SPLICE.encode() * 99)[:-20])


def test_ucis_splice_junctions_are_those_of_their_description(shared_data):
    """splice.names: 767 EI, 768 IE and 1,655 N of 60 bases each; 185 of the 3,190 stand there twice."""
    report = Report()
    found = list(DNA().examples(shared_data / "dna" / "uci_splice_junction" / "splice.data", report))
    assert Counter(e.label for e in found) == {"EI": 767, "IE": 768, "N": 1655}
    assert {len(e.sequences[0]) for e in found} == {60}
    assert len(found) - len({e.sequences for e in found}) == 185
    assert report.skipped_records == 0


def test_ucis_promoters_are_those_of_their_description(shared_data):
    """promoters.names: 53 of each class, 57 bases."""
    found = list(DNA().examples(shared_data / "dna" / "uci_promoters" / "promoters.data", Report()))
    assert Counter(e.label for e in found) == {"+": 53, "-": 53}
    assert {len(e.sequences[0]) for e in found} == {57}


def test_degeneracy_follows_biopythons_genetic_code():
    table = CodonTable.unambiguous_dna_by_id[11].forward_table
    for codon in map("".join, product("ACGT", repeat=3)):
        if codon not in table:
            continue
        for place, label in enumerate(degeneracy(codon)):
            others = [codon[:place] + base + codon[place + 1 :] for base in "ACGT" if base != codon[place]]
            same = sum(table.get(other) == table[codon] for other in others)
            assert label == {0: "0", 1: "2", 2: "2", 3: "4"}[same]
