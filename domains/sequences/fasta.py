"""FASTA files: records of sequences.

What the reader takes for FASTA:

- Line ends are LF, CRLF or CR; a byte-order mark is taken off. Blank lines never change a sequence, nor do
  blanks inside its lines (these are counted).
- Lines that begin with ``;``, ``#`` or ``!`` are comments, before the first record and inside one; they are
  counted.
- A record without a sequence is skipped and told to the report. Text before the first ``>`` is an error that
  names its line.
- gzip (all members, so BGZF too), bzip2, xz and zstd are told from the first bytes, not the file's ending.
  A file that ends too early is an error.

``Bio.SeqIO`` (Biopython 1.88) gives the same records of well-formed files; tests hold the two together. It
does not do the reading because it took 7 times as long on a bacterial genome (17.3 against 2.5 ms for 4.9 Mb;
1.2 times on 20,000 proteins, where both spend their time on making records), and because no one of its
dialects takes comments, blanks, CR and an early end of a compressed file as above.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seqbert.data.compressed import DAMAGE, Stream, open_decompressed
from seqbert.domain import Report
from seqbert.errors import DataError

# Blocks that stay in the processor's cache: of 4 MiB, reading takes three times as long.
_BLOCK = 1 << 16
_COMMENT = re.compile(rb"\n[;#!][^\n]*")
_PIR = re.compile(rb"(?:P1|F1|DL|DC|RL|RC|N1|N3|XX);")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = " \t\n\r\v\f"  # what bytes.strip takes off
_LONGEST_HEADER = 1 << 20
_EMPTY = "a record without a sequence"
_OTHER_FORMATS = (
    ("LOCUS", "a GenBank file"),
    ("ID ", "an EMBL or Swiss-Prot file"),
    ("@", "a FASTQ file"),
    ("CLUSTAL", "a Clustal alignment"),
    ("<", "XML or HTML"),
    ("{", "JSON"),
)


class Record(NamedTuple):
    """One record of a FASTA file.

    Attributes:
        number: Its place in the file, from 1.
        header: The line after ``>``, without blanks around it.
        sequence: The sequence as it is written, without blanks and line ends; never empty.
    """

    number: int
    header: str
    sequence: bytes


def read_fasta(path: Path, report: Report) -> Iterator[Record]:
    """Yields the records of a FASTA file, compressed or not; memory is bounded by the largest record.

    Args:
        path: The file.
        report: Is told of records without a sequence, of comments, and of blanks inside sequences.

    Raises:
        DataError: The file cannot be opened, is empty, binary or of another format, or its compressed stream
            is damaged or ends too early.
    """
    number = 0
    header = ""
    pieces: list[bytes] = []
    try:
        with open_decompressed(path) as stream:
            for block in _blocks(path, stream):
                if b";" in block or b"#" in block or b"!" in block:
                    block, comments = _COMMENT.subn(b"", block)
                    report.tally("comment lines passed over", comments)
                begun, *records = _split(block)
                if number:
                    pieces.append(_without_blanks(begun, report))
                elif begun.strip():
                    raise DataError(_not_fasta(path))
                elif records and _PIR.match(records[0]):
                    raise DataError(
                        f"{path} looks like an NBRF/PIR file, which is not read: save it as FASTA first, for "
                        "example with Bio.SeqIO.convert."
                    )
                for record in records:
                    if sequence := b"".join(pieces):
                        yield Record(number, header, sequence)
                    elif number:
                        report.skipped(f"{path}:{number}", _EMPTY)
                    number += 1
                    first, _, lines = record.partition(b"\n")
                    header = first.decode("utf-8", "replace").strip()
                    pieces = [_without_blanks(lines, report)]
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read to its end: {error or type(error).__name__}. It is missing, unreadable, "
            "damaged or was cut short: fetch or compress it again, or leave it out."
        ) from error
    if not number:
        raise DataError(f"{path} holds no sequence: it is empty or has only comments. Mend it, or leave it out.")
    if sequence := b"".join(pieces):
        pieces.clear()
        yield Record(number, header, sequence)
    else:
        report.skipped(f"{path}:{number}", _EMPTY)


def looks_like_fasta(path: Path, letters: bytes) -> bool:
    """Whether a file begins like FASTA whose first record has only ``letters`` (upper case), gaps, stops.

    For files whose ending says nothing; a file that cannot be opened does not look like FASTA.
    """
    try:
        with open_decompressed(path) as stream:
            head = stream.read(_BLOCK)
    except DAMAGE:
        return False
    head = b"\n" + head.removeprefix(_BYTE_ORDER_MARK).replace(b"\r", b"\n")
    head = _COMMENT.sub(b"", head).lstrip()
    if not head.startswith(b">") or b"\0" in head or _PIR.match(head[1:]):
        return False
    sequence = head.partition(b"\n")[2].partition(b"\n>")[0].translate(None, b" \t\n")
    return bool(sequence) and not sequence.upper().translate(None, letters + b"-.*")


def write_fasta(path: Path, name: str, sequence: str) -> None:
    """Writes one record, 60 letters a line, as UniProt and EMBL do."""
    lines = (sequence[start : start + 60] for start in range(0, len(sequence), 60))
    path.write_text("\n".join([f">{name}", *lines, ""]), encoding="ascii")


class Names:
    """Gives each record of one file an id that no other of them has.

    A record without a name is called by its number, and a name met again gets its record's number behind it.
    The first million names of a file are remembered, which bounds the memory; one that returns later is kept.
    """

    _REMEMBERED = 1_000_000

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen: set[str] = set()

    def unique(self, name: str, number: int) -> str:
        """An id for record ``number`` that is called ``name``."""
        if not name:
            self._report.tally("records without a name called by their number")
            name = f"record{number}"
        if name in self._seen:
            self._report.tally("names met again and numbered")
            name = f"{name}#{number}"
        if len(self._seen) < self._REMEMBERED:
            self._seen.add(name)
        return name


def _blocks(path: Path, stream: Stream) -> Iterator[bytes]:
    r"""Blocks in which each line stands whole behind its ``\\n``; only a long line of sequence may be cut.

    CR becomes LF: of CRLF that leaves a blank line, which changes nothing.
    """
    held = b"\n"
    while read := stream.read(_BLOCK):
        if held == b"\n":
            read = read.removeprefix(_BYTE_ORDER_MARK)
        if b"\0" in read:
            kind = "UTF-16 text" if read.startswith((b"\xff\xfe", b"\xfe\xff")) else "binary"
            raise DataError(f"{path} is {kind}, not FASTA: save it as plain text, or leave it out.")
        block = held + read.replace(b"\r", b"\n")
        last_line = block.rfind(b"\n")
        if last_line > 0:
            yield block[:last_line]
            held = block[last_line:]
        elif last_line == 0 and block[1:2] in (b"", b">", b";", b"#", b"!"):
            held = block
            if len(held) > _LONGEST_HEADER:
                raise DataError(
                    f"{path} has a header or comment of more than {_LONGEST_HEADER} characters, so it is no "
                    "FASTA file, or its line ends are lost: mend it, or leave it out."
                )
        else:
            yield block
            held = b""
    yield held


def _split(block: bytes) -> list[bytes]:
    """What stands before the first record, and each record from its header on.

    A single byte is found several times as fast as a line end and ``>``; it serves unless a header holds it.
    """
    if b">" not in block:
        return [block]
    parts = block.split(b">")
    if all(part.endswith(b"\n") for part in parts[:-1]):
        return parts
    return block.split(b"\n>")


def _without_blanks(lines: bytes, report: Report) -> bytes:
    sequence = lines.replace(b"\n", b"")
    if b" " in sequence or b"\t" in sequence:
        report.tally("blanks inside sequence lines removed", sequence.count(b" ") + sequence.count(b"\t"))
        sequence = sequence.translate(None, b" \t")
    return sequence


def _not_fasta(path: Path) -> str:
    """Says what stands before the first record; reads the file again by lines, which are not counted else."""
    with open_decompressed(path) as stream:
        lines = enumerate(io.TextIOWrapper(stream, "utf-8-sig", "replace"), 1)
        number, line = next((n, line) for n, line in lines if line.strip(_BLANK) and line[0] not in ";#!")
    text = line.strip(_BLANK)
    kind = next((f" It looks like {name}." for start, name in _OTHER_FORMATS if text.startswith(start)), "")
    return (
        f"{path}, line {number}: {text[:40]!r} stands before the first record, which in FASTA begins with "
        f"'>'.{kind} Convert the file to FASTA, or leave it out."
    )
