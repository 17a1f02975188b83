"""GenBank, GenPept, EMBL and Swiss-Prot: flat files whose records end with a line of two slashes.

A file is cut into its records here, so that a record that cannot be understood is skipped and the next is read. What
a record says about itself is understood by Biopython. Its letters are what stands behind ``ORIGIN`` or ``SQ``, less
numbers and blanks, in upper case: GenBank and EMBL write them in lower case without meaning anything by it.
Features, references and comments are left out before, but for what is kept as metadata: they take most of the time,
and a bad location in one of them need not cost the sequence.

A record without letters, whose sequence is only referred to (CONTIG, WGS, a master record), is skipped.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from domains.sequences.metadata import (
    family_of,
    joined,
    kept,
    lineage_metadata,
    without_common_name,
    without_evidence,
)
from domains.sequences.records import OTHER_KIND, Kind, SequenceRecord, lines_of, text_of
from seqbert.domain import Report

UNDEFINED = "a record without letters: its sequence is only referred to, or missing"
CUT_SHORT = "a record that ends before its // line"
UNCLEAR = "a record whose head cannot be understood"
NO_END = "records without a // line whose letters are as many as declared"
NO_BEGIN = "a record without its first line"
OTHER_LENGTH = "another number of letters than the record declares"

_NO_LETTERS = b" \t0123456789"
_LENGTH = re.compile(r"\b(\d+)\s+(?:bp|aa|BP|AA)\b")
_PROTEIN = re.compile(r"(?i:\b\d+\s+aa\b)|\bPRT\b")
_TAXON = re.compile(rb'/db_xref="taxon:(\d+)"')
_GENE = re.compile(rb'/gene="([^"]+)"')
_FULL_NAME = re.compile(r"Full=([^;]+)")
_NO_NAMES = ("", ".", "<unknown id>", "<unknown name>", "<unknown description>")


_Said: TypeAlias = tuple[str, str, dict[str, str]]
"""Name, description and metadata."""


class _Entry(NamedTuple):
    """A record as it stands: the lines of its head, its letters, and whether its end was met.

    ``taxon`` and ``gene`` are what its features say first; they may be empty.
    """

    number: int
    head: list[str]
    letters: bytes
    taxon: str
    gene: str
    ended: bool


class _Layout(NamedTuple):
    """What the lines of a format look like.

    Attributes:
        begin: How a record begins.
        letters: How the line before the letters begins.
        kept: How lines begin that belong to the head, with those that follow them and begin with blanks.
        parse: Understands a record.
    """

    begin: bytes
    letters: bytes
    kept: tuple[bytes, ...]
    parse: Callable[[_Entry], _Said]


def read_genbank(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the records of a GenBank or GenPept file.

    Args:
        path: The file.
        kind: Records of the other kind are skipped.
        report: Is told of what is skipped and noted.

    Raises:
        DataError: The file cannot be opened, or its compressed stream is damaged or ends too early.
    """
    return _read(path, kind, report, _GENBANK)


def read_embl(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the records of an EMBL file; as :func:`read_genbank`."""
    return _read(path, kind, report, _EMBL)


def read_swissprot(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the records of a UniProt/Swiss-Prot flat file; as :func:`read_genbank`."""
    return _read(path, kind, report, _SWISSPROT)


def _read(path: Path, kind: Kind, report: Report, layout: _Layout) -> Iterator[SequenceRecord]:
    for entry in _entries(path, report, layout):
        source = f"{path}:{entry.number}"
        first = entry.head[0]
        called = first.split(None, 2)[1].rstrip(";") if len(first.split()) > 1 else ""
        declared = int(length[1]) if (length := _LENGTH.search(first)) else None
        found = len(entry.letters)
        is_protein = bool(_PROTEIN.search(first))
        if is_protein != (kind == "protein"):
            report.skipped(source, OTHER_KIND[kind], called)
            continue
        if not entry.ended and found != declared:
            report.skipped(source, CUT_SHORT, f"{called}: {found:,} letters of {declared or 'an unknown number'}")
            continue
        if not found:
            report.skipped(source, UNDEFINED, called)
            continue
        if not is_protein:
            entry = entry._replace(gene="")  # the first of a genome's many genes says nothing about it
        try:
            name, description, metadata = layout.parse(entry)
        except Exception as error:  # Biopython raises many kinds, of which ValueError is only the most usual
            report.skipped(source, UNCLEAR, f"{called}: {' '.join(str(error).split())[:200]}")
            continue
        report.note(NO_END, not entry.ended)
        if declared is not None and declared != found:
            source = f"{path}:{entry.number}"
            report.repaired(source, OTHER_LENGTH, f"{called}: {declared:,} are declared, {found:,} are there")
            metadata["declared_length"] = str(declared)
        yield SequenceRecord(entry.number, name, description, entry.letters.upper(), metadata)


def _entries(path: Path, report: Report, layout: _Layout) -> Iterator[_Entry]:
    """Cuts a file into its records; one that begins before the one before it has ended cuts that short."""
    number = 0
    head: list[str] = []
    letters = bytearray()
    taxon = gene = ""
    in_letters = is_kept = False
    outside = 0  # lines since the last record

    def text(line: bytes) -> str:
        return text_of(line, f"{path}:{number}", report)

    for line in lines_of(path):
        if head and (line.startswith(b"//") or line.startswith(layout.begin)):
            yield _Entry(number, head, bytes(letters), taxon, gene, line.startswith(b"//"))
            head, letters = [], bytearray()
            taxon = gene = ""
            in_letters = False
            if line.startswith(b"//"):
                continue
        if not head:
            begun = line if number else line.lstrip()
            if begun.startswith(layout.begin):
                number += 1
                head.append(text(begun))
                is_kept, outside = True, 0
            elif line.startswith(b"//") and outside:
                number += 1
                report.skipped(f"{path}:{number}", NO_BEGIN)
                outside = 0
            elif line.strip():
                report.note("lines outside of records passed over")
                outside += 1
        elif in_letters and not line.startswith(b"CONTIG"):
            letters += line.translate(None, _NO_LETTERS)
        elif line.startswith(layout.letters):
            in_letters = True
        else:
            if line[:1] not in (b" ", b""):
                is_kept = line.startswith(layout.kept)
            if is_kept:
                head.append(text(line))
            elif not taxon and (found := _TAXON.search(line)):
                taxon = found[1].decode()
            elif not gene and (found := _GENE.search(line)):
                gene = text(found[1])
    if head:
        yield _Entry(number, head, bytes(letters), taxon, gene, False)


def _whole(head: list[str], *letters: str) -> io.StringIO:
    """A head as a record of its own."""
    return io.StringIO("\n".join([*head, *letters, "//", ""]))


def _parse_with(dialect: str, letters: str) -> Callable[[_Entry], _Said]:
    """A parser by :mod:`Bio.SeqIO`, which wants to meet the line before the letters, though none follow."""

    def parse(entry: _Entry) -> _Said:
        from Bio import BiopythonWarning, SeqIO

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BiopythonWarning)  # of spacing in heads that it reads all the same
            record = SeqIO.read(_whole(entry.head, letters), dialect)  # type: ignore[no-untyped-call]
        said = record.annotations
        organism = without_common_name(str(said.get("organism", "")))
        accession = str((said.get("accessions") or [""])[0])
        metadata = kept(
            accession=accession,
            organism=organism,
            taxon=entry.taxon,
            gene=entry.gene,
            molecule=str(said.get("molecule_type") or ""),
            division=str(said.get("data_file_division") or ""),
            keywords=joined(map(str, said.get("keywords", []))),
            **lineage_metadata([str(rank) for rank in said.get("taxonomy", []) if rank], organism),
        )
        name = str(record.name if record.id in _NO_NAMES else record.id)
        description = "" if record.description in _NO_NAMES else str(record.description).removesuffix(".")
        return name, description, metadata

    return parse


def _parse_swissprot(entry: _Entry) -> _Said:
    from Bio import SwissProt

    record = SwissProt.read(_whole(entry.head))  # type: ignore[no-untyped-call]
    organism = without_common_name(record.organism)
    similarities = [text for text in record.comments if text.startswith("SIMILARITY")]
    genes = [names["Name"] for names in record.gene_name if isinstance(names, dict) and "Name" in names]
    full = _FULL_NAME.search(record.description)
    metadata = kept(
        accession=record.accessions[0],
        entry=record.entry_name,
        organism=organism,
        taxon=record.taxonomy_id[0] if record.taxonomy_id else "",
        gene=without_evidence(genes[0]) if genes else "",
        family=next(filter(None, map(family_of, similarities)), ""),
        keywords=joined(map(without_evidence, record.keywords)),
        **lineage_metadata(record.organism_classification, organism),
    )
    description = full[1] if full else record.description.removesuffix(".")
    return record.accessions[0], without_evidence(description), metadata


_GENBANK = _Layout(
    begin=b"LOCUS ",
    letters=b"ORIGIN",
    kept=(b"DEFINITION", b"ACCESSION", b"VERSION", b"KEYWORDS", b"SOURCE"),
    parse=_parse_with("genbank", "ORIGIN"),
)
_EMBL = _Layout(
    begin=b"ID   ",
    letters=b"SQ   ",
    kept=(b"AC", b"SV", b"DE", b"KW", b"OS", b"OC", b"OG"),
    parse=_parse_with("embl", "SQ   Sequence 0 BP; 0 A; 0 C; 0 G; 0 T; 0 other;"),
)
_SWISSPROT = _Layout(
    begin=b"ID   ",
    letters=b"SQ   ",
    kept=(b"AC", b"DE", b"GN", b"OS", b"OC", b"OX", b"KW", b"CC"),
    parse=_parse_swissprot,
)
