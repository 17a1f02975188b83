"""Files of sequences: told from their content, and read record by record.

=============  ==============================================================================================
FASTA          :mod:`domains.sequences.fasta`; A2M and A3M are FASTA whose sequences are aligned
FASTQ          :mod:`domains.sequences.fastq`
GenBank, EMBL  :mod:`domains.sequences.flat_files`; GenPept and Swiss-Prot too
UniProt XML    :mod:`domains.sequences.uniprot_xml`
Stockholm      :mod:`domains.sequences.alignments`
PIR            :mod:`domains.sequences.pir`
=============  ==============================================================================================

Every reader tells the report of each record that it leaves out, with its reason and place, and goes on behind it; one
whose own format says that it is of the other kind (a protein in a file of nucleotides) is left out too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from domains.sequences.alignments import aligned_as, looks_like_stockholm, read_stockholm
from domains.sequences.fasta import COMMENT, Record, letters_of_first_record, read_fasta
from domains.sequences.fastq import looks_like_fastq, read_fastq
from domains.sequences.flat_files import read_embl, read_genbank, read_swissprot
from domains.sequences.pir import looks_like_pir, read_pir
from domains.sequences.records import Kind, SequenceRecord, head_of, parse_header
from domains.sequences.uniprot_xml import looks_like_uniprot_xml, read_uniprot_xml
from seqbert.data.compressed import DAMAGE, without_compression
from seqbert.domain import Report

_Read: TypeAlias = Callable[[Path, Kind, Report], Iterator[SequenceRecord]]
_BOTH: tuple[Kind, ...] = ("nucleotide", "protein")

_EMBL = re.compile(rb"ID {3}[^\n]*(?:\bBP\.?|\b\d+ SQ)\s*$", re.MULTILINE)
_SWISSPROT = re.compile(rb"ID {3}[^\n]*\b\d+ AA\.?\s*$", re.MULTILINE)
_GENBANK = re.compile(rb"LOCUS\s[^\n]*\d+ (?:bp|aa|BP|AA)\b|[^\n]*Genetic Sequence Data Bank")


class Format(NamedTuple):
    """A format of files of sequences.

    Attributes:
        name: What it is called.
        read: Yields its records.
        endings: Endings that say that a file is of this format, for each kind of sequence that it may hold.
        aligned: Whether lower-case letters are insertions between the columns of an alignment.
    """

    name: str
    read: _Read
    endings: Mapping[Kind, tuple[str, ...]]
    aligned: bool = False


def _read_fasta(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    def with_header_parsed(record: Record) -> SequenceRecord:
        name, description, metadata = parse_header(record.header, kind)
        return SequenceRecord(record.number, name, description, record.sequence, metadata)

    return map(with_header_parsed, read_fasta(path, report))  # a loop here would hold each sequence until the next


FASTA = Format(
    "FASTA",
    _read_fasta,
    {
        "nucleotide": (".fasta", ".fa", ".fas", ".fna", ".ffn", ".frn"),
        "protein": (".fasta", ".fa", ".fas", ".faa", ".pep", ".pro"),
    },
)
A2M = Format("A2M", _read_fasta, dict.fromkeys(_BOTH, (".a2m",)), aligned=True)
A3M = Format("A3M", _read_fasta, dict.fromkeys(_BOTH, (".a3m",)), aligned=True)
FASTQ = Format("FASTQ", read_fastq, {"nucleotide": (".fastq", ".fq")})
GENBANK = Format(
    "GenBank", read_genbank, {"nucleotide": (".gb", ".gbk", ".gbff", ".genbank"), "protein": (".gp", ".gpff", ".gb")}
)
EMBL = Format("EMBL", read_embl, dict.fromkeys(_BOTH, (".embl",)))
SWISSPROT = Format("Swiss-Prot", read_swissprot, {"protein": (".dat", ".swiss", ".sprot")})
UNIPROT_XML = Format("UniProt XML", read_uniprot_xml, {"protein": (".xml",)})
STOCKHOLM = Format("Stockholm", read_stockholm, dict.fromkeys(_BOTH, (".sto", ".stk", ".stockholm")), aligned=True)
PIR = Format("NBRF/PIR", read_pir, dict.fromkeys(_BOTH, (".pir", ".nbrf")))

FORMATS = (FASTA, A2M, A3M, FASTQ, GENBANK, EMBL, SWISSPROT, UNIPROT_XML, STOCKHOLM, PIR)

_OF_MANY = (".dat", ".xml")
"""Endings that files of other kinds have too: in a folder they need the right content."""


def endings(kind: Kind) -> dict[str, str]:
    """What :attr:`seqbert.domain.Domain.formats` says of files that hold this kind of sequence."""
    return {ending: form.name for form in FORMATS for ending in form.endings.get(kind, ())}


def sequence_format(path: Path) -> Format | None:
    """The format of a file as its first bytes tell it, or None; whether A2M or A3M, its ending may tell too."""
    try:
        head = head_of(path).lstrip()
    except DAMAGE:
        return None
    return _format_of(path, head)


def read_sequences(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the records of a file of sequences of any known format; memory is bounded by the largest record.

    Args:
        path: The file.
        kind: What is wanted. Records that say to be of the other kind are skipped.
        report: Is told of what is skipped, changed and noted.

    Raises:
        DataError: The file cannot be opened, is of no known format, or its compressed stream is damaged or ends too
            early.
    """
    form = sequence_format(path) or FASTA  # whose reader says what is wrong, and in which line
    return form.read(path, kind, report)


def holds_sequences(path: Path, kind: Kind, letters: bytes) -> bool:
    """Whether a file met in a folder is one of sequences of this kind.

    FASTA, which does not say what it holds, is so by its ending or if the first record has only ``letters`` (upper
    case), gaps and stops. A file of another content is so if its ending leaves no doubt of what it should be: reading
    it says what is wrong.
    """
    ending = without_compression(path).suffix.lower()
    known = ending in endings(kind)
    try:
        head = head_of(path).lstrip()
    except DAMAGE:
        return known
    form = _format_of(path, head)
    if form is None:
        return known and ending not in _OF_MANY
    if form.read is _read_fasta:
        return known or letters_of_first_record(head, letters)
    return kind in form.endings


def _format_of(path: Path, head: bytes) -> Format | None:
    for form, matches in (
        (STOCKHOLM, looks_like_stockholm),
        (GENBANK, _GENBANK.match),
        (SWISSPROT, _SWISSPROT.match),
        (EMBL, _EMBL.match),
        (UNIPROT_XML, looks_like_uniprot_xml),
        (FASTQ, looks_like_fastq),
    ):
        if matches(head):
            return form
    head = COMMENT.sub(b"", b"\n" + head).lstrip()
    if not head.startswith(b">"):
        return None
    if looks_like_pir(head):
        return PIR
    ending = without_compression(path).suffix.lower()
    aligned = ending.removeprefix(".") if ending in (".a2m", ".a3m") else aligned_as(head)
    return {"a2m": A2M, "a3m": A3M}.get(aligned, FASTA)
