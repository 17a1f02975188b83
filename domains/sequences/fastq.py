"""FASTQ files: reads of a sequencer with a quality for each letter (Cock et al. 2010).

The letters and the qualities of a read may be wrapped over several lines, and blank lines change nothing. A read
that is no whole one is skipped with its reason, and reading goes on at the next line that begins one. The qualities
are checked and not used.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from domains.sequences.records import (
    BLANKS,
    OTHER_KIND,
    Kind,
    SequenceRecord,
    blanks_inside,
    lines_of,
    parse_header,
    text_of,
)
from seqbert.domain import Report

_LETTERS = re.compile(rb"[A-Za-z.*\-~ \t]*")
_FASTQ = re.compile(rb"@[^\n]*\n(?:[A-Za-z.*\-~ \t]*\n)*(?:\+|[A-Za-z.*\-~ \t]*\Z)")
_BLANKS = b" \t"
_QUALITIES = bytes(range(ord("!"), ord("~") + 1))  # Cock et al. 2010, table 1

NO_LETTERS = "a record without a sequence"
CUT_SHORT = "a read that ends before its qualities"
OTHER_NAME = "a read whose + line names another"
NOT_AS_LONG = "a read with another number of qualities than letters"
NO_QUALITIES = "a read with characters among its qualities that are none"
NO_READ = "text where a read should begin"


def looks_like_fastq(head: bytes) -> bool:
    """Whether the first bytes of a file, with LF line ends, begin a FASTQ file; SAM begins with ``@`` too."""
    return bool(_FASTQ.match(head.lstrip()))


def read_fastq(path: Path, kind: Kind, report: Report) -> Iterator[SequenceRecord]:
    """Yields the reads of a FASTQ file.

    Args:
        path: The file.
        kind: Where it is "protein" every read is skipped.
        report: Is told of what is skipped.

    Raises:
        DataError: The file cannot be opened, or its compressed stream is damaged or ends too early.
    """
    lines = _Lines(path)
    number = 0
    while (line := lines.next()) is not None:
        if not line.strip():
            continue
        number += 1
        source = f"{path}:{number}"
        if not line.startswith(b"@"):
            report.skipped(source, NO_READ, f"line {lines.number} is {line[:40].decode('utf-8', 'replace')!r}")
            lines.skip_to_a_read()
            continue
        name, description, metadata = parse_header(text_of(line[1:], source, report).strip(), "nucleotide")
        sequence, reason, detail = _rest_of_read(lines, line[1:])
        if not reason and kind == "protein":
            reason = OTHER_KIND[kind]
        if reason:
            report.skipped(source, reason, f"{name}, line {lines.number}{': ' if detail else ''}{detail}")
            continue
        report.tally(BLANKS, blanks_inside(sequence), source, name)
        yield SequenceRecord(number, name, description, sequence.translate(None, b" \t\n"), metadata)


def _rest_of_read(lines: _Lines, title: bytes) -> tuple[bytes, str, str]:
    """What follows a read's first line: its lines of letters, and why it is to be skipped, in general and here."""
    pieces = []
    while (line := lines.next()) is not None and not line.startswith((b"+", b"@")):
        pieces.append(line)
    sequence = b"\n".join(pieces)
    if line is None or line.startswith(b"@"):
        if line is not None:
            lines.give_back([line])
        return b"", CUT_SHORT, ""
    letters = len(sequence.translate(None, b" \t\n"))
    repeated = line[1:].strip()

    taken: list[bytes] = []
    missing = letters
    while missing > 0 and (next_line := lines.next()) is not None:
        taken.append(next_line)
        missing -= len(next_line.translate(None, _BLANKS))
    if missing or not _ends_a_read(lines):
        return b"", *_resume(lines, taken, letters, missing)
    qualities = b"".join(taken).translate(None, _BLANKS)
    if repeated and repeated != title.strip():
        return b"", OTHER_NAME, repeated.decode("utf-8", "replace")
    if wrong := qualities.translate(None, _QUALITIES):
        return b"", NO_QUALITIES, repr(chr(wrong[0]))
    if not letters:
        return b"", NO_LETTERS, ""
    return sequence, "", ""


def _ends_a_read(lines: _Lines) -> bool:
    """Whether what follows is the file's end or begins a read, be it one that lacks its title."""
    lines.skip_blank()
    following = lines.peek(2)
    if not following or following[0].startswith(b"@"):
        return True
    return len(following) == 2 and following[1].startswith(b"+") and bool(_LETTERS.fullmatch(following[0]))


def _resume(lines: _Lines, taken: list[bytes], letters: int, missing: int) -> tuple[str, str]:
    """Goes back to the first line among the qualities at which the next read seems to begin; says what was wrong."""
    following = [*taken, *lines.peek(2)]
    begins = [
        place
        for place, line in enumerate(taken)
        if line.startswith(b"@") and place + 1 < len(following) and _LETTERS.fullmatch(following[place + 1])
    ]
    if begins:
        lines.give_back(taken[begins[0] :])
        found = sum(len(line.translate(None, _BLANKS)) for line in taken[: begins[0]])
        return NOT_AS_LONG, f"{letters} letters, {found} qualities"
    if missing > 0:  # the file has ended
        return CUT_SHORT, f"{letters} letters, {letters - missing} qualities"
    lines.skip_to_a_read()
    return NOT_AS_LONG, f"{letters} letters, {letters - missing} qualities or more"


class _Lines:
    """The lines of a file, some of which can be given back."""

    def __init__(self, path: Path) -> None:
        self._lines = lines_of(path)
        self._waiting: deque[bytes] = deque()
        self.number = 0

    def next(self) -> bytes | None:
        line = self._waiting.popleft() if self._waiting else next(self._lines, None)
        self.number += line is not None
        return line

    def skip_blank(self) -> None:
        while (line := self.next()) is not None:
            if line.strip():
                self.give_back([line])
                return

    def peek(self, count: int) -> list[bytes]:
        while len(self._waiting) < count and (line := next(self._lines, None)) is not None:
            self._waiting.append(line)
        return list(self._waiting)[:count]

    def give_back(self, lines: list[bytes]) -> None:
        self._waiting.extendleft(reversed(lines))
        self.number -= len(lines)

    def skip_to_a_read(self) -> None:
        """Passes lines over up to one that begins with ``@`` and is followed by letters."""
        while (line := self.next()) is not None:
            if line.startswith(b"@") and all(map(_LETTERS.fullmatch, self.peek(1))):
                self.give_back([line])
                return
