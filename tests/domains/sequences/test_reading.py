"""Formats told from content, and records of every format held to those of Biopython."""

import bz2
import gzip
import io
import lzma
import warnings

import pytest
from Bio import AlignIO, SeqIO
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.sequences.alignments import aligned_as
from domains.sequences.metadata import METADATA
from domains.sequences.reading import endings, holds_sequences, read_sequences, sequence_format
from domains.sequences.records import Names, looks_like_nucleotides, parse_header
from seqbert.domain import Report
from seqbert.errors import DataError

PROTEINS = b"ACDEFGHIKLMNPQRSTVWYXUBZOJ*"

FASTQ = b"@r1 first\nACGT\n+\nIIII\n@r2\nGG\nCA\n+r2\nII\nII\n"
GENBANK = b"""LOCUS       AB1                       8 bp    DNA     linear   BCT 01-JAN-2001
DEFINITION  A made-up stretch.
ACCESSION   AB1
VERSION     AB1.1
KEYWORDS    one; two.
SOURCE      Escherichia coli
  ORGANISM  Escherichia coli
            Bacteria; Pseudomonadota; Escherichia.
FEATURES             Location/Qualifiers
     source          1..8
                     /db_xref="taxon:562"
ORIGIN
        1 acgtacgt
//
"""
EMBL = b"""ID   X1; SV 1; linear; mRNA; STD; PRO; 8 BP.
XX
AC   X1;
XX
SQ   Sequence 8 BP; 2 A; 2 C; 2 G; 2 T; 0 other;
     acgtacgt                                                                  8
//
"""
SWISSPROT = b"""ID   TEST_ECOLI              Reviewed;           8 AA.
AC   P00001; Q00001;
DE   RecName: Full=A test {ECO:0000303|PubMed:1};
GN   Name=tst {ECO:0000303|PubMed:1};
OS   Escherichia coli (strain K12).
OC   Bacteria; Pseudomonadota; Escherichia.
OX   NCBI_TaxID=83333;
CC   -!- SIMILARITY: Belongs to the test family. {ECO:0000305}.
KW   Membrane.
SQ   SEQUENCE   8 AA;  900 MW;  0000000000000000 CRC64;
     MKTAYIAK
//
"""
XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<uniprot xmlns="http://uniprot.org/uniprot">
<entry dataset="Swiss-Prot"><accession>P00001</accession><name>TEST_ECOLI</name>
<protein><recommendedName><fullName>A test</fullName></recommendedName></protein>
<organism><name type="scientific">Escherichia coli</name><dbReference type="NCBI Taxonomy" id="562"/>
<lineage><taxon>Bacteria</taxon><taxon>Escherichia</taxon></lineage></organism>
<comment type="similarity"><text>Belongs to the test family.</text></comment>
<sequence length="8">MKTA
YIAK</sequence></entry>
</uniprot>
"""
STOCKHOLM = b"""# STOCKHOLM 1.0
#=GF ID Test
#=GF AC PF00001.5
#=GS one/1-6 OS Escherichia coli
one/1-6 MKta-
two     MK..-
#=GC SS_cons HHHHH

one/1-6 YI
two     -I
#=GC SS_cons HH
//
"""
PIR = b">P1;one\nthe title\nMKTA YIAK*\nC;a comment\n>P1;two\n\nMK\nTA*\n"
A3M = b">q\nMKTAYI\n>h\nMK-aAYI\n>i\nMKTAYI\n"


@pytest.fixture
def made(tmp_path):
    """A function that writes a file and gives its path."""

    def write(content, name="x"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def read(path, kind="protein", strict=False):
    report = Report(strict)
    return [record.sequence.decode() for record in read_sequences(path, kind, report)], report


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\n;c\n>a\nACGT\n", "FASTA"),
        (FASTQ, "FASTQ"),
        (GENBANK, "GenBank"),
        (EMBL, "EMBL"),
        (SWISSPROT, "Swiss-Prot"),
        (XML, "UniProt XML"),
        (STOCKHOLM, "Stockholm"),
        (PIR, "NBRF/PIR"),
        (A3M, "A3M"),
        (A3M.replace(b"TAYI", b"T.AYI"), "A2M"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_format_is_told_from_the_content_whatever_the_ending_line_ends_and_compression(made, content, name, compress):
    for changed in (content, b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content.replace(b"\n", b"\r")):
        path = made(compress(changed), "spooled.bin")
        assert sequence_format(path).name == name
        kind = "nucleotide" if name in ("FASTQ", "GenBank", "EMBL") else "protein"
        assert read(path, kind)[0] == read(made(content), kind)[0] != []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n\0",
        b"@HD\tVN:1.6\n@SQ\tSN:1\tLN:8\n",
        b"ID   1.1.1.1\nDE   alcohol dehydrogenase.\n//\n",
        b"<html><p>MKTA</p></html>",
        b'{"a": 1}',
        b"LOCUST swarms\n",
        b"accession,sequence\nP1,MKTA\n",
    ],
)
def test_what_is_no_file_of_sequences_is_left_alone_in_a_folder_and_an_error_where_it_is_named(made, content):
    path = made(content, "x.txt")
    assert sequence_format(path) is None
    assert not holds_sequences(path, "protein", PROTEINS)
    with pytest.raises(DataError, match=r"x\.txt"):
        read(path)


def test_a_folder_gives_a_domain_the_files_of_its_kind(made):
    assert holds_sequences(made(SWISSPROT, "uniprot.txt"), "protein", PROTEINS)
    assert not holds_sequences(made(SWISSPROT, "uniprot.dat"), "nucleotide", b"ACGT")
    assert not holds_sequences(made(FASTQ, "reads.fastq"), "protein", PROTEINS)
    assert not holds_sequences(made(b"1,2\n", "other.dat"), "protein", PROTEINS)
    assert holds_sequences(made(b"no FASTA", "broken.fasta"), "protein", PROTEINS)  # so that the error is told
    assert holds_sequences(made(b">a\nMK\n", "x.seq"), "protein", PROTEINS)
    assert not holds_sequences(made(b">a\nMK\n", "x.seq"), "nucleotide", b"ACGT")
    assert endings("protein")[".faa"] == "FASTA"
    assert ".fq" not in endings("protein")


def test_records_of_hostile_flat_files_are_those_of_biopython(shared_data):
    """Of every file that Biopython reads, the same names and letters; that one reads letters with the features."""
    compared = 0
    for folder, kind in (("dna", "nucleotide"), ("protein", "protein")):
        for path in sorted((shared_data / "hostile" / folder).iterdir()):
            form = sequence_format(path).name
            dialect = {
                "GenBank": "genbank",
                "EMBL": "embl",
                "Swiss-Prot": "swiss",
                "UniProt XML": "uniprot-xml",
                "NBRF/PIR": "pir",
                "FASTQ": "fastq",
            }.get(form)
            raw = path.read_bytes()
            content = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
            stream = io.BytesIO(content) if form == "UniProt XML" else io.StringIO(content.decode().replace("\r", ""))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = [(r.id, r.name, bytes(r.seq).upper()) for r in SeqIO.parse(stream, dialect) if r.seq]
            except Exception:  # it gives the whole file up, or meets a sequence that is not defined
                continue
            ours = [(r.name, r.sequence.upper()) for r in read_sequences(path, kind, Report())]
            for (name, letters), (theirs_id, theirs_name, theirs_letters) in zip(ours, theirs, strict=False):
                assert letters == theirs_letters
                assert name in (theirs_id, theirs_name)
                compared += 1
    assert compared >= 45


def test_an_organism_family_and_more_are_kept_as_metadata(made):
    (record,) = read_sequences(made(SWISSPROT), "protein", Report())
    assert record[1:4] == ("P00001", "A test", b"MKTAYIAK")
    assert record.metadata == {
        "accession": "P00001",
        "entry": "TEST_ECOLI",
        "organism": "Escherichia coli (strain K12)",
        "taxon": "83333",
        "gene": "tst",
        "family": "test family",
        "keywords": "Membrane",
        "superkingdom": "Bacteria",
        "genus": "Escherichia",
    }
    (record,) = read_sequences(made(XML), "protein", Report())
    assert record[1:4] == ("P00001", "A test", b"MKTAYIAK")
    assert record.metadata["family"] == "test family"
    assert record.metadata["taxon"] == "562"
    (record,) = read_sequences(made(GENBANK), "nucleotide", Report())
    assert record[1:4] == ("AB1.1", "A made-up stretch", b"ACGTACGT")
    assert record.metadata == {
        "accession": "AB1",
        "organism": "Escherichia coli",
        "taxon": "562",
        "molecule": "DNA",
        "division": "BCT",
        "keywords": "one; two",
        "superkingdom": "Bacteria",
        "genus": "Escherichia",
    }
    first, second = read_sequences(made(STOCKHOLM), "protein", Report())
    assert first[1:] == (
        "one/1-6",
        "",
        b"MKta-YI",
        {"organism": "Escherichia coli", "family": "PF00001", "family_name": "Test"},
    )
    assert second.sequence == b"MK..--I"
    for content in (SWISSPROT, XML, STOCKHOLM):
        for record in read_sequences(made(content), "protein", Report()):
            assert set(record.metadata) <= set(METADATA)


def test_the_flat_and_the_fasta_file_of_the_same_proteins_give_the_same_records(shared_data):
    folder = shared_data / "hostile" / "protein"
    flat = list(read_sequences(folder / "biopython__multi_ex.txt", "protein", Report(strict=True)))
    fasta = list(read_sequences(folder / "biopython__multi_ex.fasta", "protein", Report(strict=True)))
    assert [(r.name, r.sequence) for r in flat] == [(r.name, r.sequence) for r in fasta]
    assert [r.metadata["organism"] for r in flat] == [r.metadata["organism"] for r in fasta]
    assert [r.metadata.get("gene") for r in flat] == [r.metadata.get("gene") for r in fasta]
    families = [r.metadata["family"] for r in flat if "family" in r.metadata]  # two are said to contain domains only
    assert families[:2] == ["peptidase S1 family", "CbbQ/NirQ/NorQ/GpvN family"]
    assert len(families) == 6


@pytest.mark.parametrize(
    ("content", "kind", "letters"),
    [(GENBANK, "nucleotide", "ACGTACGT"), (EMBL, "nucleotide", "ACGTACGT"), (SWISSPROT, "protein", "MKTAYIAK")],
)
def test_one_bad_record_of_a_flat_file_costs_no_other(made, content, kind, letters):
    lines = content.split(b"\n")
    bad = b"\n".join([lines[0][:12], *lines[1:]])  # the first line says nothing but a name
    undefined = b"\n".join(line for line in lines if not line.startswith(b"     ") and b"acgt" not in line)
    cut = b"\n".join(lines[:-3]) + b"\n"
    sequences, report = read(made(content + bad + undefined + cut + content), kind)
    assert sequences[0] == sequences[-1] == letters
    assert len(sequences) + report.skipped_records == 5
    assert report.skips["a record without letters: its sequence is only referred to, or missing"] == 1
    assert report.skips["a record that ends before its // line"] == 1
    with pytest.raises(DataError, match="x:2: "):
        read(made(content + undefined), kind, strict=True)


def test_row30_a_record_whose_sequence_is_undefined_is_skipped_and_listed_and_never_n(shared_data):
    folder = shared_data / "hostile" / "dna"
    names = ("NT_019265.gb", "DS830848.gb", "DS830848.embl", "bad_origin_wrap_linear.gb")
    report = Report()
    for name in names:
        assert list(read_sequences(folder / f"biopython__{name}", "nucleotide", report)) == []
    reason = "a record without letters: its sequence is only referred to, or missing"
    assert report.skips == {reason: 4}
    assert report.examples[reason] == [f"{folder}/biopython__{name}:1" for name in names]
    with pytest.raises(DataError, match=r"NT_019265\.gb:1: a record without letters.*NT_019265"):
        list(read_sequences(folder / "biopython__NT_019265.gb", "nucleotide", Report(strict=True)))


def test_records_of_the_other_kind_are_skipped_by_what_the_format_says(made, shared_data):
    hostile = shared_data / "hostile"
    for path, count in (("dna/biopython__patents.embl", 4), ("dna/biopython__blank_seq.gb", 1)):
        sequences, report = read(hostile / path, "nucleotide")
        assert (sequences, report.skips) == ([], {"a protein, not nucleotides": count})
    for content in (FASTQ, GENBANK, EMBL, b">DL;one\n\nACGT*\n"):
        sequences, report = read(made(content), "protein")
        assert sequences == []
        assert set(report.skips) == {"nucleotides, not a protein"}
    for content in (SWISSPROT, XML, PIR):
        sequences, report = read(made(content), "nucleotide")
        assert sequences == []
        assert set(report.skips) == {"a protein, not nucleotides"}


def test_another_length_than_declared_is_a_repair_and_kept(made):
    (record,) = read_sequences(made(GENBANK.replace(b" 8 bp", b" 9 bp")), "nucleotide", report := Report())
    assert record.metadata["declared_length"] == "9"
    assert report.repairs == {"another number of letters than the record declares": 1}
    assert read(made(GENBANK.removesuffix(b"//\n")), "nucleotide")[0] == ["ACGTACGT"]  # whole, but for its end


def test_entities_in_xml_are_refused_before_anything_is_read(made, tmp_path):
    (tmp_path / "secret").write_text("MKSECRET")
    bomb = b'<!DOCTYPE uniprot [<!ENTITY a "MK"><!ENTITY b "&a;&a;&a;">]>'
    outside = b'<!DOCTYPE uniprot [<!ENTITY b SYSTEM "file://%s/secret">]>' % str(tmp_path).encode()
    for declaration in (bomb, outside):
        content = XML.replace(b"<uniprot", declaration + b"<uniprot", 1).replace(b"MKTA", b"&b;")
        with pytest.raises(DataError, match="document type"):
            read(made(content))
    sequences, report = read(made(XML.replace(b"MKTA", b"&b;")))
    assert (sequences, report.skips) == ([], {"an entry that is no well-formed XML": 1})


def test_one_bad_entry_of_xml_costs_no_other(made):
    head, entry, tail = XML[: XML.index(b"<entry")], XML[XML.index(b"<entry") : XML.index(b"</uniprot")], b"</uniprot>"
    damaged = entry.replace(b"</organism>", b"")
    empty = entry.replace(b"MKTA\nYIAK", b"")
    sequences, report = read(made(head + entry + damaged + empty + entry + tail))
    assert sequences == ["MKTAYIAK"] * 2
    assert sum(report.skips.values()) == 2
    sequences, report = read(made(head + entry + entry[:-30]))
    assert (sequences, report.skips) == (["MKTAYIAK"], {"an entry that is not closed": 1})
    many = head + entry * 2000 + tail  # several blocks, whose ends fall anywhere
    assert read(made(many))[0] == ["MKTAYIAK"] * 2000


def test_stockholm_gives_the_rows_of_biopython_over_several_blocks_and_alignments(made):
    theirs = [str(r.seq) for r in AlignIO.read(io.StringIO(STOCKHOLM.decode()), "stockholm")]
    sequences, report = read(made(STOCKHOLM + STOCKHOLM + b"# STOCKHOLM 1.0\none two three\nx MK\n"))
    assert [letters.replace(".", "-") for letters in sequences] == [*theirs, *theirs, "MK"]  # it writes . as -
    assert report.skips == {"a line of a Stockholm file that is no aligned sequence": 1}
    assert report.tallies == {"alignments without a // line": 1}


def test_pir_gives_the_records_of_biopython_and_skips_one_without_a_type(made):
    theirs = [(r.id, str(r.seq)) for r in SeqIO.parse(io.StringIO(PIR.decode().replace("C;a comment\n", "")), "pir")]
    records = list(read_sequences(made(PIR + b">three\nMK*\n>P1;four\ntitle\n*\n"), "protein", report := Report()))
    assert [(r.name, r.sequence.decode()) for r in records] == theirs
    assert records[0].description == "the title"
    assert report.skips == {"a record without the type of a PIR record": 1, "a record without a sequence": 1}


def test_a_file_cut_short_is_an_error_in_every_format(made):
    for content in (FASTQ, GENBANK, EMBL, SWISSPROT, XML, STOCKHOLM, PIR, A3M):
        kind = "nucleotide" if content in (FASTQ, GENBANK, EMBL) else "protein"
        with pytest.raises(DataError, match=r"cut\.gz cannot be read to its end"):
            read(made(gzip.compress(content * 3000)[:-10], "cut.gz"), kind)


def test_a3m_is_told_from_masked_fasta_by_its_columns():
    assert aligned_as(b">a\nMKT-\n>b\nMKaTV\n>c\nMKTV") == "a3m"
    assert aligned_as(b">a\nMKT\n>b\nMKaTV\n>c\nMKTV") == ""
    assert aligned_as(b">a\nMKT-\n>b\nMKTV\n>c\nMKTV") == ""  # nothing inserted: the same either way


def test_headers_of_uniprot_uniref_and_ncbi_are_understood():
    header = "sp|P00750|TPA_HUMAN Plasminogen activator OS=Homo sapiens OX=9606 GN=PLAT PE=1 SV=1"
    assert parse_header(header) == (
        "P00750",
        "Plasminogen activator",
        {"entry": "TPA_HUMAN", "organism": "Homo sapiens", "taxon": "9606", "gene": "PLAT"},
    )
    assert parse_header("UniRef50_Q9K794 Putative AgrB-like protein n=2 Tax=Bacillus TaxID=1386 RepID=AGRB_BACHD") == (
        "UniRef50_Q9K794",
        "Putative AgrB-like protein",
        {"organism": "Bacillus", "taxon": "1386"},
    )
    assert parse_header("gi|45478712|ref|NP_995567.1| putative transposase [Yersinia pestis]") == (
        "NP_995567.1",
        "putative transposase",
        {"organism": "Yersinia pestis"},
    )
    assert parse_header("chr1 [assembly] OS=none", "nucleotide") == ("chr1", "[assembly] OS=none", {})
    assert parse_header("plain") == ("plain", "", {})
    assert parse_header(" \t") == ("", "", {})


def test_nucleotides_are_told_from_poor_proteins():
    assert looks_like_nucleotides(b"acgtun" * 5)
    assert not looks_like_nucleotides(b"ACGT" * 7)  # too short to tell
    assert not looks_like_nucleotides(b"AAT" * 20)  # a glycoprotein of antifreeze
    assert not looks_like_nucleotides(b"GA" * 30)  # silk
    assert not looks_like_nucleotides(b"ACGT" * 20 + b"M")


def test_a_name_met_again_is_numbered_and_noted_and_both_records_are_kept():
    names = Names(report := Report(strict=True))
    assert [names.unique(name, number) for number, name in enumerate(["a", "", "a"], 1)] == ["a", "record2", "a#3"]
    assert report.notes == {"records without a name called by their number": 1, "names met again and numbered": 1}


@given(
    st.sampled_from([FASTQ, GENBANK * 2, EMBL * 2, SWISSPROT * 2, XML, STOCKHOLM, PIR, A3M]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_gives_records_skips_or_one_kind_of_error(tmp_path_factory, content, damage):
    for place, taken, put in damage:
        place %= len(content)
        content = content[:place] + put + content[place + taken :]
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(content)
    for kind in ("nucleotide", "protein"):
        report = Report()
        try:
            records = list(read_sequences(path, kind, report))
        except DataError as error:
            assert str(path) in str(error)
        else:
            numbers = [record.number for record in records]
            assert numbers == sorted(set(numbers))
            assert all(record.sequence.strip() for record in records)
            assert report.skips.total() == report.skipped_records
