"""DNA with labels in the two formats of the UCI Machine Learning Repository, told by what a file holds.

- Splice junctions (Noordewier, Towell & Shavlik 1991; ``splice.data``): ``EI,    NAME,    SEQUENCE`` with blanks
  to fill the columns; the classes are EI (exon to intron), IE (intron to exon) and N (neither), the sequences 60
  bases with some IUPAC codes.
- Promoters (Harley & Reynolds 1987; Towell, Shavlik & Noordewier 1990): in the repository's own
  ``promoters.data``, ``+,NAME,SEQUENCE``; in the form that other collections hand on, the row's number, 57
  columns of one base each, and the class. The classes are + and -.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from domains.sequences.records import Names
from seqbert.data.compressed import DAMAGE, open_decompressed
from seqbert.domain import Example, Report
from seqbert.errors import DataError

_BASES = "[ACGTURYSWKMBDHVNacgturyswkmbdhvn]"
_NAMED = re.compile(rf"(?P<label>EI|IE|N|[+-]),\s*(?P<id>[^,\s]+),\s*(?P<sequence>{_BASES}+)")
_COLUMNS = re.compile(rf"(?P<id>\d+),(?P<sequence>(?:{_BASES},){{2,}})(?P<label>[+-])")
_HEAD = 1 << 12
_LONGEST_LINE = 1 << 16


def uci_examples(path: Path, canonical: Callable[[str, Report, str], str], report: Report) -> Iterator[Example] | None:
    """The examples of a file in one of UCI's formats; None where the first line that is not blank is in neither.

    Rows that hold something else are skipped and told to ``report``; blank lines are passed over. A name that is
    met again, as some are in ``splice.data``, gets its line's number behind it.

    Raises:
        DataError: The file cannot be opened, or while it is read, its compressed stream is damaged.
    """
    try:
        with open_decompressed(path) as file:
            head = file.read(_HEAD)
    except DAMAGE as error:
        raise _unreadable(path, error) from error
    first = next((line for line in head.decode("latin-1").splitlines() if line.strip()), "")
    row = next((pattern for pattern in (_NAMED, _COLUMNS) if pattern.fullmatch(first.strip())), None)
    return None if row is None else _read(path, row, canonical, report)


def _read(
    path: Path, row: re.Pattern[str], canonical: Callable[[str, Report, str], str], report: Report
) -> Iterator[Example]:
    names = Names(report)
    for number, text in _lines(path):
        source = f"{path}:{number}"
        match = row.fullmatch(text.strip())
        if match is not None:
            sequence = canonical(match["sequence"].replace(",", ""), report, source)
            yield Example(names.unique(match["id"], number), (sequence,), match["label"], source)
        elif text.strip():
            report.skipped(source, "a row that is not in the format of the rows before it")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_decompressed(path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                yield number, line.decode("latin-1")
    except DAMAGE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read: {error}. Copy or download it again.")
