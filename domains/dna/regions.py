"""Places in large genomes: FASTA files that are reached by contig and position, and BED files of regions.

The index is that of ``samtools faidx`` (Li et al. 2009): where each contig's first base stands in the file, and how
its lines are broken. ``FILE.fai`` is used where it is there and fits; else the file is gone through once, and the
index is held in memory. bgzip files (BGZF, SAM specification, section 4.1) are reached block by block; of files that
are compressed otherwise a plain copy is made in a temporary file, which is gone with the process.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from domains.sequences.reading import FASTA, sequence_format
from domains.sequences.records import damaged, lines_of
from seqbert.data.compressed import DAMAGE, open_decompressed
from seqbert.domain import Report
from seqbert.errors import DataError

_COPIED_AT_ONCE = 1 << 20
_LONGEST_HEADER = 1 << 16
_LOCUS = re.compile(r"(?P<contig>\S+):(?P<start>\d[\d,]*)-(?P<end>\d[\d,]*)(?:\((?P<strand>[+-])\))?")


class Region(NamedTuple):
    """A stretch of a contig.

    Attributes:
        contig: The contig's name.
        start: Its first base, counted from 0.
        end: One past its last.
        strand: "+", or "-" for the other strand.
        name: What it is called; may be empty.
        source: The line that says so.
    """

    contig: str
    start: int
    end: int
    strand: Literal["+", "-"] = "+"
    name: str = ""
    source: str = ""

    @property
    def place(self) -> str:
        """As genome browsers write it, counted from 1.

        >>> Region("chr1", 999, 2000, "-").place
        'chr1:1000-2000(-)'
        """
        return f"{self.contig}:{self.start + 1}-{self.end}{'(-)' if self.strand == '-' else ''}"


def parse_locus(text: str) -> Region | None:
    """A place as genome browsers write it; None where the text is something else.

    >>> parse_locus("chr1:1,000-2,000(-)")
    Region(contig='chr1', start=999, end=2000, strand='-', name='', source='')
    >>> parse_locus("ACGT")
    """
    match = _LOCUS.fullmatch(text.strip())
    if match is None:
        return None
    start, end = (int(match[key].replace(",", "")) for key in ("start", "end"))
    return Region(match["contig"], start - 1, end, "-" if match["strand"] == "-" else "+")


def read_bed(path: Path, report: Report) -> Iterator[Region]:
    """Yields the regions of a BED file (UCSC's definition): contig, start, end, and where given name and strand.

    Columns are parted by tabs, or where there is none by blanks. Header and comment lines are passed over; blocks,
    as of exons, are not looked at. A malformed line is skipped and told to ``report``.

    Raises:
        DataError: The file cannot be read.
    """
    for number, line in enumerate(lines_of(path), 1):
        text = line.decode("utf-8", "replace").strip("\n")
        if not text.strip() or text.startswith("#") or text.split(None, 1)[0] in ("track", "browser"):
            continue
        source = f"{path}:{number}"
        columns = [column.strip() for column in (text.split("\t") if "\t" in text else text.split())]
        if len(columns) < 3 or not (columns[1].isdecimal() and columns[2].isdecimal()):
            report.skipped(source, "a line that is no region: contig, start and end are needed", repr(text[:60]))
            continue
        start, end = int(columns[1]), int(columns[2])
        strand = columns[5] if len(columns) > 5 else "+"
        if start >= end:
            report.skipped(source, "a region that ends before it begins", f"{start} to {end}")
        elif strand not in ("+", "-", "."):
            report.skipped(source, "a region whose strand is none of + - .", repr(strand))
        else:
            name = columns[3] if len(columns) > 3 and columns[3] != "." else ""
            yield Region(columns[0], start, end, "-" if strand == "-" else "+", name, source)


class _Contig(NamedTuple):
    """A line of the index; ``bases`` and ``width`` are those of a full line, without and with its end."""

    length: int
    offset: int
    bases: int
    width: int
    even: bool = True


class Genome:
    """A FASTA file whose contigs are reached by position; memory holds the index.

    Args:
        path: The file, plain or compressed.

    Raises:
        DataError: It cannot be read, or is no FASTA file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if sequence_format(path) is not FASTA and path.is_file():
                raise DataError(
                    f"{path} is no FASTA file, and only these are reached by position: convert it, for example with "
                    "Bio.SeqIO.convert."
                )
            self._file = _seekable(path)
            self._contigs = self._read_index() or self._make_index()
        except DAMAGE as error:
            raise damaged(path, error) from error

    def __reduce__(self) -> tuple[type[Genome], tuple[Path]]:
        return Genome, (self.path,)

    def length(self, contig: str) -> int | None:
        """Bases of a contig; None where there is none of that name."""
        found = self._contigs.get(contig)
        return None if found is None else found.length

    def fault(self, region: Region) -> str:
        """Why there is no such region, in words that can be counted; empty where there is."""
        contig = self._contigs.get(region.contig)
        if contig is None:
            return "a region on a contig that the file does not have"
        if not contig.even:
            return "a region on a contig with lines of different lengths, blanks or comments: no position is known"
        if not 0 <= region.start < region.end <= contig.length:
            return "a region that reaches beyond its contig"
        return ""

    def fetch(self, region: Region) -> bytes:
        """The letters of a region as they stand in the file, whichever strand it is on.

        Raises:
            DataError: There is no such region (see :meth:`fault`), or the file cannot be read there.
        """
        if fault := self.fault(region):
            raise DataError(f"{region.place}: {fault} ({self.path}).")
        _, offset, bases, width, _ = self._contigs[region.contig]
        first, last = (offset + place // bases * width + place % bases for place in (region.start, region.end - 1))
        try:
            self._file.seek(first)
            letters = self._file.read(last + 1 - first).translate(None, b"\r\n")
        except DAMAGE as error:
            raise damaged(self.path, error) from error
        if len(letters) != region.end - region.start or not letters.translate(None, b"*-.").isalpha():
            raise DataError(f"{self.path} is not as its index says: make {self.path}.fai anew, or remove it.")
        return letters

    def _read_index(self) -> dict[str, _Contig] | None:
        """What ``FILE.fai`` says; None where it is missing, malformed, older than the file, or of another one."""
        index = self.path.with_name(self.path.name + ".fai")
        try:
            if index.stat().st_mtime < self.path.stat().st_mtime:
                return None
            lines = index.read_text(encoding="utf-8").splitlines()
            rows = [line.split("\t") for line in lines]
            contigs = {
                name: _Contig(int(length), int(offset), int(bases), int(width))
                for name, length, offset, bases, width, *_ in rows
            }
        except (OSError, ValueError):
            return None
        fits = contigs and all(0 < c.bases <= c.width or not c.length for c in contigs.values())
        return contigs if fits and all(self._begins_at(*one) for one in contigs.items()) else None

    def _begins_at(self, name: str, contig: _Contig) -> bool:
        """Whether the header of this contig stands before its first base, and its last base ends its sequence."""
        before = max(contig.offset - _LONGEST_HEADER, 0)
        self._file.seek(before)
        lines = self._file.read(contig.offset - before).splitlines()
        if not lines or lines[-1].split()[:1] != [b">" + name.encode()]:
            return False
        if not contig.length:
            return True
        last = contig.length - 1
        self._file.seek(contig.offset + last // contig.bases * contig.width + last % contig.bases)
        around = self._file.read(2)
        return around[:1].isalpha() and around[1:] in (b"", b"\r", b"\n")

    def _make_index(self) -> dict[str, _Contig]:
        contigs: dict[str, _Contig] = {}
        self._file.seek(0)
        name, offset, length, bases, width, even, ended = "", 0, 0, 0, 0, True, False
        place = 0
        for line in self._file:
            place += len(line)
            if line.startswith(b">"):
                if name:
                    contigs.setdefault(name, _Contig(length, offset, bases, width, even))
                words = line[1:].split(None, 1)
                name = words[0].decode("utf-8", "replace") if words else ""
                offset, length, bases, width, even, ended = place, 0, 0, 0, True, False
                continue
            text = line.rstrip(b"\r\n")
            if text[:1] in (b";", b"#", b"!") or b" " in text or b"\t" in text:  # readers take these out
                even = False
            letters = len(text)
            if not bases:
                bases, width = letters, len(line)
                offset = place - len(line)
            elif letters and (ended or letters > bases):
                even = False
            ended = ended or letters != bases or len(line) != width
            length += letters
        if name:
            contigs.setdefault(name, _Contig(length, offset, bases, width, even))
        if not contigs:
            raise DataError(f"{self.path} has no contig with a name.")
        return contigs


def _seekable(path: Path) -> BinaryIO:
    """The file for reading anywhere, decompressed."""
    plain = path.open("rb")
    head = plain.read(18)
    if _block_size(head):
        return io.BufferedReader(_Bgzf(plain), _COPIED_AT_ONCE)
    with open_decompressed(path) as stream:
        if isinstance(stream, io.BufferedReader) and not head.startswith(b"\x28\xb5\x2f\xfd"):
            return plain
        plain.close()
        copy = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the genome)
        shutil.copyfileobj(stream, copy, _COPIED_AT_ONCE)
    return copy


def _block_size(head: bytes) -> int:
    """Bytes of a BGZF block that begins so; 0 where none does."""
    if len(head) < 18 or head[:4] != b"\x1f\x8b\x08\x04" or head[12:16] != b"BC\x02\x00":
        return 0
    return int.from_bytes(head[16:18], "little") + 1


class _Bgzf(io.RawIOBase):
    """A bgzip file that can be read from any position of what it holds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._blocks: list[int] = []
        self._begins: list[int] = []
        place = begin = 0
        file.seek(0)
        while head := file.read(18):
            size = _block_size(head)
            if not size:
                raise OSError("a block of bgzip is damaged, or something else stands behind the last one")
            self._blocks.append(place)
            self._begins.append(begin)
            place += size
            file.seek(place - 4)
            tail = file.read(4)
            if len(tail) < 4:
                raise EOFError("it was cut short within a block of bgzip")
            begin += int.from_bytes(tail, "little")
        self._size = begin
        self._place = 0
        self._held = (-1, b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Goes to a position of what the file holds."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        """The position."""
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Reads on within one block."""
        if self._place >= self._size:
            return 0
        number = bisect_right(self._begins, self._place) - 1
        begin = self._place - self._begins[number]
        piece = self._block(number)[begin : begin + len(buffer)]
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        if self._held[0] != number:
            self._file.seek(self._blocks[number])
            head = self._file.read(18)
            packed = self._file.read(_block_size(head) - 18 - 8)
            self._held = number, zlib.decompress(packed, -15)
        return self._held[1]
