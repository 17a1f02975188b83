import bz2
import gzip
import lzma
import resource
import subprocess
import sys

import pyarrow
import pytest
from Bio import SeqIO
from Bio.bgzf import BgzfWriter

from domains.sequences.fasta import letters_of_first_record, read_fasta, write_fasta
from seqbert.cli import main
from seqbert.domain import Report
from seqbert.errors import DataError

TWO_RECORDS = b">a first\nACGT\nAC\n>b\nGGCA\n"


def read(path, report=None):
    return [(r.header, r.sequence.decode()) for r in read_fasta(path, report or Report())]


@pytest.fixture
def fasta(tmp_path):
    """A function that writes a file and gives its path."""

    def write(content, name="x.fasta"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("name", ["dna/genomes_ecoli/NC_008253.fna.gz", "protein/uniprot_mmseqs2/DB.fasta.gz"])
def test_records_are_those_of_biopython(shared_data, name):
    with gzip.open(shared_data / name, "rt") as stream:
        theirs = [(r.description, str(r.seq)) for r in SeqIO.parse(stream, "fasta")]
    assert read(shared_data / name) == theirs


def test_row22_comments_and_blank_lines_before_the_first_record_are_passed_over_and_noted(fasta):
    report = Report(strict=True)
    assert read(fasta(b"# x\n\n>a\nACGT"), report) == [("a", "ACGT")]
    assert report.notes == {"comment lines passed over": 1}


def test_row22_other_text_before_the_first_record_is_an_error_that_names_the_line(fasta):
    with pytest.raises(DataError, match="line 1: 'ACGT'"):
        read(fasta(b"ACGT\n"))
    with pytest.raises(DataError, match="line 4: 'text'"):
        read(fasta(b"# x\r\n\r\n; y\r\ntext\r\n>a\r\nACGT\r\n"))


def test_comments_inside_a_record_change_nothing_and_a_header_may_hold_their_marks(fasta):
    assert read(fasta(b">a; b #1 -> 2!\nAC\n;no\nGT\n#no\n!no\n>b\nA\n")) == [
        ("a; b #1 -> 2!", "ACGT"),
        ("b", "A"),
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_row24_all_line_ends_give_the_same_records_inside_gzip_too(fasta, end, compress):
    content = TWO_RECORDS.replace(b"\n", end)
    assert read(fasta(compress(content))) == read(fasta(TWO_RECORDS)) == [("a first", "ACGTAC"), ("b", "GGCA")]
    assert read(fasta(compress(content.rstrip()))) == read(fasta(TWO_RECORDS))


def test_row25_blank_lines_change_nothing_and_an_empty_record_is_skipped_with_its_reason(fasta):
    report = Report()
    path = fasta(b">r1\n\n\n>r2\nGG\n\nCA\n\n>r3\n")
    assert read(path, report) == [("r2", "GGCA")]
    assert report.skips == {"a record without a sequence": 2}
    assert report.examples["a record without a sequence"] == [f"{path}:1", f"{path}:3"]
    report = Report()
    assert read(fasta(b">r1\n\n\n>r2\nGGCA\n"), report) == [("r2", "GGCA")]
    assert report.skipped_records == 1
    with pytest.raises(DataError, match=r"x\.fasta:1: a record without a sequence: r1\. .*strict"):
        read(fasta(b">r1\n\n\n>r2\nGGCA\n"), Report(strict=True))


def test_row27_all_members_of_a_gzip_file_are_read(fasta):
    members = gzip.compress(b">a\nA\n>b\nC\n>c\nG\n") + gzip.compress(b">d\nT\n")
    assert [header for header, _ in read(fasta(members))] == ["a", "b", "c", "d"]


def test_row29_a_file_cut_short_is_an_error_that_names_it(fasta):
    with pytest.raises(DataError, match=r"short\.fa\.gz cannot be read to its end"):
        read(fasta(gzip.compress(TWO_RECORDS)[:-10], "short.fa.gz"))
    with pytest.raises(DataError, match=r"short\.fa\.xz cannot be read to its end"):
        read(fasta(lzma.compress(TWO_RECORDS)[:-10], "short.fa.xz"))


def test_row29_ten_bytes_cut_off_a_fa_gz_end_a_command_with_an_exit_code_and_the_files_name(fasta, tmp_path, capsys):
    path = fasta(gzip.compress(b">a\nMKTAYIAK\n" * 20)[:-10], "short.fa.gz")
    arguments = ["--domains.protein.data", str(path), "--output", str(tmp_path / "run"), "--run.corpus_dir"]
    assert main(["prepare", "protein/pretrain", *arguments, str(tmp_path / "cache")]) == 2
    assert "short.fa.gz cannot be read to its end" in capsys.readouterr().err


def test_row29_a_damaged_file_is_an_error_that_names_it(fasta):
    whole = bytearray(gzip.compress(TWO_RECORDS * 50))
    whole[30] ^= 255
    with pytest.raises(DataError, match=r"x\.fasta cannot be read to its end"):
        read(fasta(bytes(whole)))


def test_compression_is_told_from_the_content(fasta, tmp_path):
    zstd = pyarrow.compress(TWO_RECORDS, codec="zstd", asbytes=True)
    for content in (gzip.compress(TWO_RECORDS), bz2.compress(TWO_RECORDS), lzma.compress(TWO_RECORDS), zstd):
        assert read(fasta(content, "no_ending")) == read(fasta(TWO_RECORDS))
    with BgzfWriter(str(tmp_path / "x.bgz")) as stream:
        stream.write(TWO_RECORDS)
    assert read(tmp_path / "x.bgz") == read(fasta(TWO_RECORDS))


def test_a_byte_order_mark_is_no_text(fasta):
    assert read(fasta(b"\xef\xbb\xbf" + TWO_RECORDS)) == read(fasta(TWO_RECORDS))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no sequence"),
        (b"\n# only\n", "holds no sequence"),
        (b"\x89PNG\r\n\x1a\n\0\0", "looks like a PNG image"),
        (">a\nACGT\n".encode("utf-16"), "UTF-16"),
        (b"LOCUS       AB1  10 bp\n", "GenBank"),
        (b"@read\nACGT\n+\nIIII\n", "FASTQ"),
        (b'{"sequence": "ACGT"}', "looks like JSON"),
        ("\u00a0".encode(), "line 1"),
        (b">" + b"A" * 3_000_000, "header"),
    ],
)
def test_what_is_no_fasta_file_is_an_error_that_says_what_it_is(fasta, content, said):
    with pytest.raises(DataError, match=said):
        read(fasta(content))


def test_a_file_that_is_not_there_or_a_folder_is_an_error_that_names_it(tmp_path):
    for path in (tmp_path / "absent.fa", tmp_path):
        with pytest.raises(DataError, match=str(path)):
            read(path)


@pytest.mark.parametrize("width", [60, 65534, 65535, 65536, 65537, 200_000])
def test_where_blocks_end_does_not_show(fasta, width):
    """Lines, headers and comments end before, at and behind the ends of blocks of 64 KiB."""
    sequence = "ACGTTGCA" * 40_000
    lines = "\n".join(sequence[i : i + width] for i in range(0, len(sequence), width))
    header = "h" * (1 + width % 1000)
    path = fasta(f">{header}\n{lines}\n;{'c' * width}\n>b > {header}\n{lines}".encode())
    assert read(path) == [(header, sequence), (f"b > {header}", sequence)]


def test_looks_are_judged_by_the_first_record_with_a_sequence():
    assert letters_of_first_record(b";c\n\n>a\n>b\nac-gt\n>c\nMKV", b"ACGT")
    assert not letters_of_first_record(b">a\nMKV\n", b"ACGT")
    assert not letters_of_first_record(b"> quoted mail\nhas words, and commas\n", b"ACGTHASWORDNM")
    assert not letters_of_first_record(b"", b"ACGT")


def test_blanks_inside_a_line_are_taken_out_and_counted_and_those_around_it_are_not(fasta):
    report = Report()
    assert read(fasta(b">a\n  AC GT\t\n \t \n\tA C\n"), report) == [("a", "ACGTAC")]
    assert report.tallies == {"blanks inside sequence lines removed": 2}
    with pytest.raises(DataError, match=r"x\.fasta:1: blanks inside sequence lines removed \(1\)"):
        read(fasta(b">a\nAC GT\n"), Report(strict=True))


def test_a_header_that_is_not_utf_8_is_read_as_latin_1_and_counted(fasta):
    report = Report()
    assert read(fasta(b">caf\xe9\nAC\n>\xc3\xa9\nGT\n"), report) == [("caf\u00e9", "AC"), ("\u00e9", "GT")]
    assert report.tallies == {"headers that are not UTF-8 read as Latin-1": 1}


def test_what_is_written_is_read_back_in_lines_of_60(tmp_path):
    write_fasta(tmp_path / "x.fa", "name", "ACGT" * 40)
    assert read(tmp_path / "x.fa") == [("name", "ACGT" * 40)]
    assert [len(line) for line in (tmp_path / "x.fa").read_text().splitlines()] == [5, 60, 60, 40]


@pytest.mark.slow
def test_row33_200_megabases_in_one_line_and_a_million_tiny_records_are_read_within_one_gibibyte(tmp_path):
    path = tmp_path / "large.fa"
    with path.open("wb") as stream:
        stream.write(b">chromosome\n")
        for _ in range(200):
            stream.write(b"ACGTacgtNA" * 100_000)
        for first in range(0, 1_000_000, 1000):
            stream.write(b"".join(b"\n>r%d\nACGTACGT" % number for number in range(first, first + 1000)))
    script = (
        "import sys; from pathlib import Path\n"
        "from domains.dna import DNA; from domains.sequences.reading import read_sequences\n"
        "from seqbert.domain import Report; path = Path(sys.argv[1])\n"
        "print(sum(map(len, next(DNA().read(path, Report())).segments)))\n"
        "lengths = [len(record.sequence) for record in read_sequences(path, 'nucleotide', Report())]\n"
        "print(len(lengths), lengths[0], sum(lengths[1:]))"
    )
    limit = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        env={"OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert done.stdout == "200000000\n1000001 200000000 8000000\n", done.stderr
