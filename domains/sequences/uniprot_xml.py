"""UniProt's XML: a stream of ``entry`` elements, each of which is parsed by itself.

So memory holds one entry, and one that is damaged costs no other. A document type declaration, which is where entities
that expand or that name other files would be declared, is refused before anything is parsed; UniProt writes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from domains.sequences.flat_files import OTHER_LENGTH, UNDEFINED
from domains.sequences.metadata import family_of, joined, kept, lineage_metadata
from domains.sequences.records import BLOCK, OTHER_KIND, Kind, SequenceRecord, damaged
from seqbert.data.compressed import DAMAGE, open_decompressed
from seqbert.domain import Report
from seqbert.errors import DataError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

NOT_CLOSED = "an entry that is not closed"
NOT_WELL_FORMED = "an entry that is no well-formed XML"

_BEGIN = re.compile(rb"<entry[\s>]")
_END = b"</entry>"
_ACCESSION = re.compile(rb"<accession>\s*([^<\s]+)")
_DECLARATION = re.compile(rb"<!\s*(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")


def looks_like_uniprot_xml(head: bytes) -> bool:
    """Whether the first bytes of a file begin UniProt's XML."""
    return head.lstrip().startswith(b"<") and bool(re.search(rb"<uniprot[\s>]|<entry[\s>]", head))


def read_uniprot_xml(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the entries of a UniProt XML file.

    Args:
        path: The file.
        kind: Where it is "nucleotide" every entry is skipped.
        report: Is told of what is skipped and noted.

    Raises:
        DataError: The file declares a document type, cannot be opened, or its compressed stream is damaged or ends
            too early.
    """
    for number, entry in enumerate(_entries(path), 1):
        source = f"{path}:{number}"
        accession = found[1].decode("utf-8", "replace") if (found := _ACCESSION.search(entry)) else ""
        if kind != "protein":
            report.skipped(source, OTHER_KIND[kind], accession)
            continue
        if not entry.endswith(_END):
            report.skipped(source, NOT_CLOSED, accession)
            continue
        reason, detail, record = _parse(entry, number)
        if record is None:
            report.skipped(source, reason, f"{accession}: {detail}" if detail else accession)
            continue
        if declared := record.metadata.get("declared_length"):
            report.repaired(
                source, OTHER_LENGTH, f"{accession}: {declared} are declared, {len(record.sequence)} are there"
            )
        yield record


def _entries(path: Path) -> Iterator[bytes]:
    """Each entry as it stands, from its tag to its end, or where it is not closed to the next one's tag."""
    waiting = b""
    in_entry = False
    seen = False
    try:
        with open_decompressed(path) as stream:
            while block := stream.read(BLOCK):
                searched = max(len(waiting) - len(_END), 0)
                waiting += block
                while True:
                    if not in_entry:
                        begin = _BEGIN.search(waiting)
                        if not seen:
                            _refuse_declarations(path, waiting[: begin.start() if begin else None])
                        if begin is None:
                            waiting = waiting[-len(b"<!DOCTYPE ") :]
                            break
                        waiting, in_entry, seen, searched = waiting[begin.start() :], True, True, 0
                    end = waiting.find(_END, searched)
                    following = _BEGIN.search(waiting, max(searched, 1), len(waiting) if end < 0 else end)
                    if following is not None:
                        yield waiting[: following.start()]
                        waiting, searched = waiting[following.start() :], 0
                        continue
                    if end < 0:
                        break
                    yield waiting[: end + len(_END)]
                    waiting, in_entry, searched = waiting[end + len(_END) :], False, 0
    except DAMAGE as error:
        raise damaged(path, error) from error
    if in_entry:
        yield waiting


def _refuse_declarations(path: Path, head: bytes) -> None:
    if _DECLARATION.search(head):
        raise DataError(
            f"{path} declares a document type, which may hold entities that expand without bounds or name other "
            "files, and which UniProt's own files do not have. Take the declaration out, or leave the file out."
        )


def _parse(entry: bytes, number: int) -> tuple[str, str, SequenceRecord | None]:
    """The record of an entry, or else why there is none, in general and here."""
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(entry)
    except ElementTree.ParseError as error:
        return NOT_WELL_FORMED, str(error), None
    sequence = root.find("{*}sequence")
    letters = "" if sequence is None else _BLANKS.sub("", sequence.text or "")
    if not letters or sequence is None:
        return UNDEFINED, "", None
    organism = _text(root, "{*}organism/{*}name[@type='scientific']")
    taxon = root.find("{*}organism/{*}dbReference[@type='NCBI Taxonomy']")
    similarities = [_text(comment, "{*}text") for comment in root.findall("{*}comment[@type='similarity']")]
    lineage = [rank.text or "" for rank in root.findall("{*}organism/{*}lineage/{*}taxon")]
    keywords = [keyword.text or "" for keyword in root.findall("{*}keyword")]
    accession = _text(root, "{*}accession")
    declared = sequence.get("length", "")
    metadata = kept(
        accession=accession,
        entry=_text(root, "{*}name"),
        organism=organism,
        taxon="" if taxon is None else taxon.get("id", ""),
        gene=_text(root, "{*}gene/{*}name[@type='primary']"),
        family=next(filter(None, map(family_of, similarities)), ""),
        keywords=joined(keywords),
        declared_length=declared if declared.isdigit() and int(declared) != len(letters) else "",
        **lineage_metadata([rank for rank in lineage if rank.strip()], organism),
    )
    description = _text(root, "{*}protein/{*}recommendedName/{*}fullName") or _text(
        root, "{*}protein/{*}submittedName/{*}fullName"
    )
    return "", "", SequenceRecord(number, accession, description, letters.encode("utf-8"), metadata)


def _text(element: Element, path: str) -> str:
    return _BLANKS.sub(" ", element.findtext(path, "")).strip()
