"""What a file of sequences holds: records of letters, with what is said about each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from seqbert.data.compressed import DAMAGE, open_decompressed
from seqbert.domain import Report
from seqbert.errors import DataError

Kind: TypeAlias = Literal["nucleotide", "protein"]

OTHER_KIND = {
    "nucleotide": "a protein, not nucleotides",
    "protein": "nucleotides, not a protein",
}
"""Why a record of the other kind is left out, by the kind that is wanted."""

BLOCK = 1 << 16
"""Bytes read at once, which stay in the processor's cache: blocks of 4 MiB take three times as long."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANKS = "blanks inside sequence lines removed"
NOT_UTF8 = "headers that are not UTF-8 read as Latin-1"

_UNIPROT_FIELDS = {" OS=": "organism", " OX=": "taxon", " GN=": "gene", " PE=": "", " SV=": ""}
_UNIREF_FIELDS = {" n=": "", " Tax=": "organism", " TaxID=": "taxon", " RepID=": ""}

_LETTERS_OF_NUCLEOTIDES = b"ACGTUNacgtun"
_FEWEST_NUCLEOTIDES = 30
_LEAST_SHARE = 20


class SequenceRecord(NamedTuple):
    """One record of a file of sequences.

    Attributes:
        number: Its place in the file, from 1.
        name: Its accession or identifier; may be empty.
        description: What it is said to be; may be empty.
        sequence: Its letters as they are written, gaps and stops included, without blanks and line ends; never empty.
        metadata: What else the format says, of :data:`domains.sequences.metadata.METADATA`.
    """

    number: int
    name: str
    description: str
    sequence: bytes
    metadata: dict[str, str]


def parse_header(header: str, kind: Kind = "protein") -> tuple[str, str, dict[str, str]]:
    """Name, description and metadata out of a FASTA header, as UniProt, UniRef and NCBI write it.

    Args:
        header: The line without ``>``.
        kind: Fields in the manner of UniProt are looked for in headers of proteins only.

    >>> parse_header("sp|P53508|CSSA1_ECOLX CS6 fimbrial subunit A OS=Escherichia coli OX=562 PE=1 SV=1")
    ('P53508', 'CS6 fimbrial subunit A', {'entry': 'CSSA1_ECOLX', 'organism': 'Escherichia coli', 'taxon': '562'})
    >>> parse_header("NP_995567.1 putative transposase [Yersinia pestis]")
    ('NP_995567.1', 'putative transposase', {'organism': 'Yersinia pestis'})
    >>> parse_header("NC_008253.1 Escherichia coli 536, complete genome", "nucleotide")
    ('NC_008253.1', 'Escherichia coli 536, complete genome', {})
    >>> parse_header("P1 ratio=3")
    ('P1', 'ratio=3', {})
    """
    words = header.split(None, 1)
    if not words:
        return "", "", {}
    name, rest = words if len(words) == 2 else (words[0], "")
    metadata: dict[str, str] = {}
    if "|" in name:
        bank, *ids = name.split("|")
        if bank in ("sp", "tr") and len(ids) == 2:
            name, metadata["entry"] = ids
        elif bank == "gi" and len(ids) > 2:
            name = ids[2]
    if not rest or kind == "nucleotide":
        return name, rest, metadata
    if "=" in rest:
        fields = _UNIREF_FIELDS if name.startswith("UniRef") else _UNIPROT_FIELDS
        begins = sorted((place, field) for field in fields if (place := rest.find(field)) >= 0)
        ends = [*(place for place, _ in begins[1:]), len(rest)][: len(begins)]
        for (place, field), end in zip(begins, ends, strict=True):
            if key := fields[field]:
                metadata[key] = rest[place + len(field) : end].strip()
        if begins:
            return name, rest[: begins[0][0]].rstrip(), metadata
    if rest.endswith("]") and (place := rest.rfind("[")) > 0:
        metadata["organism"] = rest[place + 1 : -1].strip()
        rest = rest[:place].rstrip()
    return name, rest, metadata


def looks_like_nucleotides(sequence: bytes) -> bool:
    """Whether what should be a protein is spelled as nucleotides are.

    That is with 30 letters or more, of A, C, G, T, U and N alone, and each of A, C, G and T or U at least one in
    twenty. These five make up a third of residues, so by chance that is one protein in 10^14; glycoproteins of
    antifreeze (repeats of AAT) and silk (of GA) lack C.
    """
    if len(sequence) < _FEWEST_NUCLEOTIDES or sequence.translate(None, _LETTERS_OF_NUCLEOTIDES):
        return False
    upper = sequence.upper().replace(b"U", b"T")
    return all(upper.count(letter) * _LEAST_SHARE >= len(upper) for letter in (b"A", b"C", b"G", b"T"))


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
        seen = self._seen
        if not name:
            self._report.note("records without a name called by their number")
            name = f"record{number}"
        if name in seen:
            self._report.note("names met again and numbered")
            name = f"{name}#{number}"
        if len(seen) < self._REMEMBERED:
            seen.add(name)
        return name


def text_of(line: bytes, source: str, report: Report) -> str:
    """A line of a header as text: UTF-8, or else Latin-1, which is told to the report."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        report.tally(NOT_UTF8, 1, source)
        return line.decode("latin-1")


def blanks_inside(lines: bytes) -> int:
    """How many blanks and tabs stand between the letters of lines; those around a line change nothing."""
    if b" " not in lines and b"\t" not in lines:
        return 0
    return sum(line.count(b" ") + line.count(b"\t") for line in map(bytes.strip, lines.split(b"\n")))


def head_of(path: Path) -> bytes:
    """The first bytes of a file, decompressed, with LF line ends, without byte-order mark.

    Raises:
        OSError or another of :data:`~seqbert.data.compressed.DAMAGE`: The file cannot be opened or decompressed.
    """
    with open_decompressed(path) as stream:
        head = stream.read(BLOCK)
    return head.removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not, without their ends (LF, CRLF or CR) and a byte-order mark.

    Raises:
        DataError: The file cannot be opened, or its compressed stream is damaged or ends too early.
    """
    held = b""
    begun = False
    try:
        with open_decompressed(path) as stream:
            while block := stream.read(BLOCK):
                if not begun:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                    begun = True
                block = held + block
                ending = b"\r" if block.endswith(b"\r") else b""  # the LF of a CRLF may follow
                lines = block.removesuffix(ending).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
                held = lines.pop() + ending
                yield from lines
    except DAMAGE as error:
        raise damaged(path, error) from error
    held = held.removesuffix(b"\r")
    if held:
        yield held


def damaged(path: Path, error: Exception) -> DataError:
    """What is said of a file that cannot be read to its end."""
    return DataError(
        f"{path} cannot be read to its end: {error or type(error).__name__}. It is missing, unreadable, "
        "damaged or was cut short: fetch or compress it again, or leave it out."
    )
