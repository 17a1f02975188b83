"""FASTA files: records of sequences.

What the reader takes for FASTA:

- Line ends are LF, CRLF or CR; a byte-order mark is taken off. Blank lines never change a sequence, nor do
  blanks inside its lines (these are taken out and counted).
- Lines that begin with ``;``, ``#`` or ``!`` are comments, before the first record and inside one; they are
  noted.
- A record without a sequence is skipped and told to the report. Text before the first ``>`` is an error that
  names its line.
- gzip (all members, so BGZF too), bzip2, xz and zstd are told from the first bytes, not the file's ending.
  A file that ends too early is an error.

``Bio.SeqIO`` (Biopython 1.88) gives the same records of well-formed files; tests hold the two together. It
does not do the reading because it took 7 times as long on a bacterial genome (17.3 against 2.5 ms for 4.9 Mb),
and because no one of its dialects takes comments, blanks, CR and an early end of a compressed file as above.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from domains.sequences.records import BLANKS, BLOCK, BYTE_ORDER_MARK, blanks_inside, damaged, head_of, text_of
from seqbert.data.compressed import DAMAGE, Stream, open_decompressed
from seqbert.data.content import describe
from seqbert.domain import Report
from seqbert.errors import DataError

COMMENT = re.compile(rb"\n[;#!][^\n]*")
EMPTY = "a record without a sequence"

_AROUND = b" \t\n"
_BLANK = " \t\n\r\v\f"  # what bytes.strip takes off
_LONGEST_HEADER = 1 << 20
_LOOSE = 512  # pieces, so 32 MiB


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
        DataError: The file cannot be opened, holds no record, is binary or of another format, or its compressed
            stream is damaged or ends too early.
    """
    number = blanks = 0
    header = b""
    pieces: list[bytes] = []
    loose = _LOOSE

    def finished() -> list[Record]:
        """The record that ends here, if it has a sequence: in a list, so that nothing here holds on to a chromosome."""
        sequence = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        source = f"{path}:{number}"
        if blanks:
            report.tally(BLANKS, blanks, source)
        name = header.strip()
        text = name.decode("ascii") if name.isascii() else text_of(name, source, report).strip()
        if sequence:
            return [Record(number, text, sequence)]
        report.skipped(source, EMPTY, text[:80])
        return []

    try:
        with open_decompressed(path) as stream:
            for block in _blocks(path, stream):
                if b";" in block or b"#" in block or b"!" in block:
                    block, comments = COMMENT.subn(b"", block)
                    report.note("comment lines passed over", comments)
                begun, *records = _split(block)
                if number:
                    pieces.append(begun.translate(None, _AROUND))
                    if len(pieces) > loose:  # many small pieces of a chromosome would leave holes in memory
                        pieces[:] = [b"".join(pieces)]
                        loose = max(_LOOSE, len(pieces[0]) // BLOCK // 4)
                    blanks += blanks_inside(begun)
                elif begun.strip():
                    raise DataError(_not_fasta(path))
                for record in records:
                    if number and (whole := finished()):
                        yield whole.pop()
                    number += 1
                    header, _, lines = record.partition(b"\n")
                    pieces = [lines.translate(None, _AROUND)]
                    blanks = blanks_inside(lines)
    except DAMAGE as error:
        raise damaged(path, error) from error
    if not number:
        raise DataError(
            f"{path} holds no sequence: it looks like {describe(head_of(path))}, or has only comments. "
            "Mend it, or leave it out."
        )
    if whole := finished():
        yield whole.pop()


def letters_of_first_record(head: bytes, letters: bytes) -> bool:
    """Whether the first record with a sequence has only ``letters`` (upper case), gaps and stops.

    Args:
        head: The first bytes of the file, with LF line ends.
        letters: What may be met besides ``-``, ``.`` and ``*``.
    """
    head = COMMENT.sub(b"", b"\n" + head)
    if b"\0" in head or not head.lstrip().startswith(b">"):
        return False
    for record in head.split(b"\n>")[1:]:
        if sequence := record.partition(b"\n")[2].translate(None, b" \t\n"):
            return not sequence.upper().translate(None, letters + b"-.*")
    return False


def write_fasta(path: Path, name: str, sequence: str) -> None:
    """Writes one record, 60 letters a line, as UniProt and EMBL do."""
    lines = (sequence[start : start + 60] for start in range(0, len(sequence), 60))
    path.write_text("\n".join([f">{name}", *lines, ""]), encoding="ascii")


def _blocks(path: Path, stream: Stream) -> Iterator[bytes]:
    r"""Blocks in which each line stands whole behind its ``\\n``; only a long line of sequence may be cut.

    CR becomes LF: of CRLF that leaves a blank line, which changes nothing.
    """
    held = b"\n"
    while read := stream.read(BLOCK):
        if held == b"\n":
            read = read.removeprefix(BYTE_ORDER_MARK)
        if b"\0" in read:
            raise DataError(
                f"{path} is no FASTA file: it looks like {describe(read)}. Save it as plain text, or leave it out."
            )
        block = held + (read.replace(b"\r", b"\n") if b"\r" in read else read)
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


def _not_fasta(path: Path) -> str:
    """Says what stands before the first record; reads the file again by lines, which are not counted else."""
    with open_decompressed(path) as stream:
        lines = enumerate(io.TextIOWrapper(stream, "utf-8-sig", "replace"), 1)
        number, line = next((n, line) for n, line in lines if line.strip(_BLANK) and line[0] not in ";#!")
    text = line.strip(_BLANK)
    return (
        f"{path}, line {number}: {text[:40]!r} stands before the first record, which in FASTA begins with '>'. "
        f"It looks like {describe(head_of(path))}. Mend the file, or leave it out."
    )
