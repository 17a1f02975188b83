"""Aligned sequences: Stockholm files, and how A2M and A3M are told from plain FASTA.

In all three a column of the family's model is an upper-case letter or ``-``, and what is inserted between columns is
in lower case; A2M and Stockholm write ``.`` where other sequences have insertions (Eddy 1998; the formats of SAM and
HH-suite). Sequences are given as they are written: what becomes of gaps and insertions is for the domain to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from domains.sequences.metadata import kept
from domains.sequences.records import OTHER_KIND, Kind, SequenceRecord, lines_of, text_of
from seqbert.domain import Report

NO_ALIGNED = "a line of a Stockholm file that is no aligned sequence"
EMPTY = "a record without a sequence"
NO_END = "alignments without a // line"

_FEWEST = 2  # sequences that can be aligned
_INSERTED = bytes(range(ord("a"), ord("z") + 1)) + b"."


def looks_like_stockholm(head: bytes) -> bool:
    """Whether the first bytes of a file begin a Stockholm file."""
    return head.lstrip().startswith(b"# STOCKHOLM")


def aligned_as(head: bytes) -> str:
    """How the first records of a FASTA file are aligned: "a2m", "a3m" or, where they are not, "".

    They are where each of them has the same number of columns (upper-case letters and ``-``), and one has an insertion
    in lower case. A2M has ``.`` besides.

    Args:
        head: The first bytes, with LF line ends; the last record may be cut and is not looked at if others are there.
    """
    records = (b"\n" + head).split(b"\n>")[1:]
    sequences = [record.partition(b"\n")[2].translate(None, b" \t\n") for record in records]
    if len(sequences) > _FEWEST:
        sequences.pop()
    if len(sequences) < _FEWEST or not any(sequence != sequence.upper() for sequence in sequences):
        return ""
    columns = {len(sequence.translate(None, _INSERTED)) for sequence in sequences}
    if len(columns) > 1 or 0 in columns or not any(b"-" in s or b"." in s for s in sequences):
        return ""
    return "a2m" if any(b"." in sequence for sequence in sequences) else "a3m"


def read_stockholm(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the sequences of every alignment of a Stockholm file, such as Pfam's, in the order of their first lines.

    The family's accession, identifier and description are metadata. Memory holds one alignment.

    Args:
        path: The file.
        kind: Where it is "protein", alignments of RNA, which Rfam's accessions tell, are skipped.
        report: Is told of what is skipped and noted.

    Raises:
        DataError: The file cannot be opened, or its compressed stream is damaged or ends too early.
    """
    number = 0
    alignment = _Alignment()
    for line_number, line in enumerate(lines_of(path), 1):
        if line.startswith(b"//"):
            yield from alignment.records(path, number, kind, report)
            number += len(alignment.sequences)
            alignment = _Alignment()
        elif line.startswith(b"#="):
            alignment.annotate(text_of(line, f"{path}:{line_number}", report))
        elif line.startswith(b"#") or not line.strip():
            continue
        elif not alignment.add(line):
            number += 1
            report.skipped(f"{path}:{line_number}", NO_ALIGNED, line[:40].decode("utf-8", "replace"))
    if alignment.sequences:
        report.tally(NO_END, 1, str(path))
        yield from alignment.records(path, number, kind, report)


class _Alignment:
    """One alignment, whose sequences may come in several blocks."""

    def __init__(self) -> None:
        self.sequences: dict[bytes, list[bytes]] = {}
        self._of_file: dict[str, str] = {}
        self._of_sequences: dict[str, dict[str, str]] = {}

    def add(self, line: bytes) -> bool:
        """Adds a line of a name and aligned letters; False if it is none."""
        parts = line.split()
        if len(parts) != 2:
            return False
        self.sequences.setdefault(parts[0], []).append(parts[1])
        return True

    def annotate(self, line: str) -> None:
        """Takes what a ``#=GF`` or ``#=GS`` line says; lines about columns are passed over."""
        parts = line.split(None, 3)
        if parts[0] == "#=GF" and len(parts) > 2:
            self._of_file.setdefault(parts[1], " ".join(parts[2:]))
        elif parts[0] == "#=GS" and len(parts) > 3:
            self._of_sequences.setdefault(parts[1], {}).setdefault(parts[2], parts[3].strip())

    def records(self, path: Path, before: int, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
        """The sequences as records; ``before`` is how many the file had before them."""
        family = self._of_file.get("AC", "").split(".")[0] or self._of_file.get("ID", "")
        is_rna = family.startswith("RF") and family[2:].isdigit()
        for number, (name, pieces) in enumerate(self.sequences.items(), before + 1):
            source = f"{path}:{number}"
            letters = b"".join(pieces)
            text = text_of(name, source, report)
            if is_rna and kind == "protein":
                report.skipped(source, OTHER_KIND[kind], text)
                continue
            if not letters.translate(None, b"-.~"):
                report.skipped(source, EMPTY, text)
                continue
            said = self._of_sequences.get(text, {})
            metadata = kept(
                accession=said.get("AC", ""),
                organism=said.get("OS", "").removesuffix("."),
                family=family,
                family_name=self._of_file.get("ID", ""),
            )
            yield SequenceRecord(number, text, said.get("DE", ""), letters.replace(b"~", b"-"), metadata)
