"""NBRF/PIR files: ``>P1;name``, a line of title, and letters up to ``*``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from domains.sequences.records import OTHER_KIND, Kind, SequenceRecord, lines_of, text_of
from seqbert.domain import Report

NO_TYPE = "a record without the type of a PIR record"
EMPTY = "a record without a sequence"
BEHIND_STAR = "what stands behind the * that ends a PIR record left out"
NO_STAR = "PIR records without a * at their end"

_TYPES: dict[str, Kind | None] = {
    **dict.fromkeys(("P1", "F1"), "protein"),
    **dict.fromkeys(("DL", "DC", "RL", "RC", "N1", "N3"), "nucleotide"),
    "XX": None,
}
"""What the types stand for; XX is anything."""

_PIR = re.compile(rb">(?:P1|F1|DL|DC|RL|RC|N1|N3|XX);")


def looks_like_pir(head: bytes) -> bool:
    """Whether the first bytes of a file, behind comments, begin a PIR file."""
    return bool(_PIR.match(head.lstrip()))


def read_pir(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the records of a PIR file. The ``*`` that ends one is no part of it, nor is what follows it.

    Args:
        path: The file.
        kind: Records of the other kind are skipped.
        report: Is told of what is skipped and noted.

    Raises:
        DataError: The file cannot be opened, or its compressed stream is damaged or ends too early.
    """
    for number, (header, lines) in enumerate(_records(path), 1):
        source = f"{path}:{number}"
        code, separator, name = text_of(header, source, report).strip().partition(";")
        if not separator or code not in _TYPES:
            report.skipped(source, NO_TYPE, header[:40].decode("utf-8", "replace"))
            continue
        if _TYPES[code] not in (None, kind):
            report.skipped(source, OTHER_KIND[kind], name)
            continue
        title, *rest = [*lines, b""]
        letters, star, behind = b"".join(rest).translate(None, b" \t").partition(b"*")
        if not letters:
            report.skipped(source, EMPTY, name)
            continue
        if behind:
            report.repaired(source, BEHIND_STAR, f"{name}: {behind[:20].decode('latin-1')!r}")
        report.tally(NO_STAR, not star, source, name)
        yield SequenceRecord(number, name.strip(), text_of(title, source, report).strip(), letters, {})


def _records(path: Path) -> Iterator[tuple[bytes, list[bytes]]]:
    """The line behind ``>`` and those that follow it, of each record."""
    header: bytes | None = None
    lines: list[bytes] = []
    for line in lines_of(path):
        if line.startswith(b">"):
            if header is not None:
                yield header, lines
            header, lines = line[1:], []
        else:
            lines.append(line)
    if header is not None:
        yield header, lines
