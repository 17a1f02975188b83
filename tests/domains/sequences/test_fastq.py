"""Reads of FASTQ files, whole and broken."""

import io

import pytest
from Bio import SeqIO
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.sequences.fastq import looks_like_fastq, read_fastq
from seqbert.domain import Report
from seqbert.errors import DataError

GOOD = b"@r%d\nACGT\n+\nIIII\n"


def read(path, content, strict=False):
    path.write_bytes(content)
    report = Report(strict)
    return [(r.name, r.sequence.decode()) for r in read_fastq(path, "nucleotide", report)], report


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"@bad\nACGT\n+other\nIIII\n", "a read whose + line names another"),
        (b"@bad\nACGT\n+\nIII\n", "a read with another number of qualities than letters"),
        (b"@bad\nACGT\n+\nIIIII\n", "a read with another number of qualities than letters"),
        (b"@bad\nACGT\n+\n\n", "a read with another number of qualities than letters"),
        (b"@bad\nACGT\n+\nI\0II\n", "a read with characters among its qualities that are none"),
        (b"@bad\nACGT\n", "a read that ends before its qualities"),
        (b"@bad\n\n+\n\n", "a record without a sequence"),
        (b"ACGT\n+\nIIII\n", "text where a read should begin"),
    ],
)
def test_a_bad_read_is_skipped_with_its_reason_and_the_next_is_read(tmp_path, bad, reason):
    path = tmp_path / "x.fastq"
    reads, report = read(path, GOOD % 1 + bad + GOOD % 3)
    assert reads == [("r1", "ACGT"), ("r3", "ACGT")]
    assert report.skips == {reason: 1}
    assert report.examples[reason] == [f"{path}:2"]
    with pytest.raises(DataError, match=r"x\.fastq:2: "):
        read(path, GOOD % 1 + bad, strict=True)


@pytest.mark.parametrize("size", range(9, len(GOOD)))
def test_a_last_read_that_is_cut_is_skipped_wherever_it_is_cut(tmp_path, size):
    """From the first letter on; the line end alone may be missing."""
    reads, report = read(tmp_path / "x.fastq", GOOD % 1 + (GOOD % 2)[: size - 1])
    assert len(reads) + report.skipped_records == 2
    assert len(reads) == (2 if (GOOD % 2)[: size - 1].endswith(b"IIII") else 1)


@given(
    st.lists(
        st.tuples(st.text("ACGTN", min_size=1, max_size=40), st.integers(1, 50), st.integers(33, 126)),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_wrapped_reads_are_those_of_biopython_whatever_their_qualities(tmp_path_factory, reads):
    """Qualities of ``@`` and ``+`` alone look like the beginnings of lines."""
    lines = []
    for number, (letters, width, quality) in enumerate(reads):
        wrapped = [letters[i : i + width] for i in range(0, len(letters), width)]
        lines += [f"@r{number}", *wrapped, "+", *(chr(quality) * len(piece) for piece in wrapped)]
    content = "\n".join(lines) + "\n"
    theirs = [(r.id, str(r.seq)) for r in SeqIO.parse(io.StringIO(content), "fastq")]
    found, report = read(tmp_path_factory.mktemp("reads") / "x.fastq", content.encode(), strict=True)
    assert found == theirs
    assert report.skipped_records == 0


def test_blanks_in_a_read_are_taken_out_and_counted(tmp_path):
    reads, report = read(tmp_path / "x.fastq", b"@r\nAC GT\n+\nII II\n")
    assert reads == [("r", "ACGT")]
    assert report.tallies == {"blanks inside sequence lines removed": 1}


def test_sam_is_no_fastq():
    assert looks_like_fastq(b"@r\nACGT\n+\nIIII\n")
    assert looks_like_fastq(b"@r\n" + b"ACGT" * 100)  # the head of a long read
    assert not looks_like_fastq(b"@HD\tVN:1.6\n@SQ\tSN:1\tLN:8\n")
