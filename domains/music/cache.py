"""Scores that were parsed before, kept by what their files hold, so that a score is parsed once on a machine.

An entry is found by the bytes of a score, the version of the readers, and what decides their outcome; neither the path
of the file nor an option that works on what was parsed, such as the grid, matters. It holds drafts, in exact
quarters, and what the readers said to the report. Entries are JSON under zlib: nothing in them is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import lcm
from pathlib import Path
from typing import Any, TypeAlias

from domains.music.piece import Draft, DraftBar, Instrument
from seqbert.data.cache import cache_folder
from seqbert.data.whole import written_beside
from seqbert.domain import Report

READERS = "3"
"""Changes whenever the readers make other drafts of the same bytes."""

LARGEST = 512 * 2**20
"""In bytes, of all entries; the ones that were not used for the longest time make room for new ones."""

_SHELVES = 64
_LARGEST_ENTRY = 256 * 2**20  # in bytes when unpacked; no score of the permitted size comes near

Drafts: TypeAlias = list[tuple[Draft, dict[str, str], list[str]]]
"""The pieces of a file, each with its metadata and what had to be repaired."""


class _Recorder(Report):
    """A report that also keeps what it is told, in order, so that it can be told again.

    Attributes:
        said: (name of the method, arguments); tallies and notes of one kind are added up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, list[Any]]] = []

    def repaired(self, source: str, reason: str, detail: str = "") -> None:
        self.said.append(("repaired", [source, reason, detail]))

    def skipped(self, source: str, reason: str, detail: str = "") -> None:
        self.said.append(("skipped", [source, reason, detail]))

    def tally(self, what: str, count: int = 1, source: str = "", detail: str = "") -> None:
        if count:
            known = next((said for name, said in self.said if name == "tally" and said[0::2] == [what, source]), None)
            if known is not None:
                known[1] += count
            else:
                self.said.append(("tally", [what, count, source, detail]))

    def note(self, what: str, count: int = 1) -> None:
        self.said.append(("note", [what, count]))

    def largest(self, what: str, value: float) -> None:
        self.said.append(("largest", [what, value]))


def parsed(
    data: bytes, options: Sequence[str], parse: Callable[[Report], Drafts], source: str, report: Report
) -> Drafts:
    """What ``parse`` makes of ``data``: from the cache, or now, and then kept there.

    A damaged entry is made anew; a folder that cannot be written to is done without.

    Args:
        data: The bytes that are parsed.
        options: What else decides the outcome: the format, how repeats are read.
        parse: Parses them, and tells what it meets to the report that it is given; what it raises is raised.
        source: How ``parse`` calls the file to the report; another file of the same bytes is called by its own name.
        report: Told what ``parse`` tells, or told when the entry was made.
    """
    place = _place(data, options)
    entry = _read(place)
    if entry is None:
        recorder = _Recorder()
        drafts = parse(recorder)
        said = recorder.said
        packed = [(_packed(draft), metadata, repairs) for draft, metadata, repairs in drafts]
        _keep(place, {"source": source, "said": said, "drafts": packed})
        known_as = source
    else:
        drafts, said, known_as = entry
    for name, arguments in said:
        getattr(report, name)(*(_renamed(argument, known_as, source) for argument in arguments))
    return drafts


def _renamed(argument: Any, old: str, new: str) -> Any:
    if old != new and isinstance(argument, str) and argument.startswith(old):
        return new + argument[len(old) :]
    return argument


def _place(data: bytes, options: Sequence[str]) -> Path:
    digest = hashlib.sha256(json.dumps([READERS, _music21_version(), *options]).encode() + b"\0" + data).hexdigest()
    return cache_folder() / "scores" / f"{int(digest[:2], 16) % _SHELVES:02x}" / f"{digest}.json.z"


@cache
def _music21_version() -> str:
    return importlib.metadata.version("music21")


def _read(place: Path) -> tuple[Drafts, list[tuple[str, list[Any]]], str] | None:
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(place.read_bytes(), _LARGEST_ENTRY)
        if not unpacker.eof:
            return None
        entry = json.loads(text)
        drafts = [(_unpacked(draft), metadata, repairs) for draft, metadata, repairs in entry["drafts"]]
        said = [(name, arguments) for name, arguments in entry["said"] if name in _SAID]
        source = str(entry["source"])
    except (OSError, zlib.error, ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
        return None
    with contextlib.suppress(OSError):
        os.utime(place)  # the entry was used just now
    return drafts, said, source


_SAID = frozenset(("repaired", "skipped", "tally", "note", "largest"))


def _keep(place: Path, entry: dict[str, Any]) -> None:
    """Writes an entry whole, and takes away the oldest of its shelf where that is full."""
    packed = zlib.compress(json.dumps(entry, separators=(",", ":")).encode(), 6)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        _make_room(place.parent, len(packed))
        with written_beside(place) as draft:
            draft.write_bytes(packed)


def _make_room(shelf: Path, size: int) -> None:
    entries = sorted((status.st_mtime, status.st_size, path) for path, status in _entries(shelf))
    total = size + sum(size for _, size, _ in entries)
    for _, freed, path in entries:
        if total <= LARGEST // _SHELVES:
            return
        path.unlink(missing_ok=True)
        total -= freed


def _entries(shelf: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in shelf.iterdir():
        with contextlib.suppress(OSError):  # another process took it away
            yield path, path.stat()


def _packed(draft: Draft) -> dict[str, Any]:
    """A draft as JSON: times are whole numbers of a common unit, ``1 / per_quarter``."""
    times: list[Fraction | int] = [draft.end, *(bar.start for bar in draft.bars), *(when for when, _ in draft.tempos)]
    times += [time for notes in draft.parts for note in notes for time in note[:2]]
    per_quarter = lcm(*{time.denominator for time in times})

    def whole(time: Fraction | int) -> int:
        return time.numerator * (per_quarter // time.denominator)

    return {
        "per_quarter": per_quarter,
        "end": whole(draft.end),
        "bars": [[whole(bar.start), bar.signature, bar.sharps] for bar in draft.bars],
        "tempos": [[whole(when), tempo] for when, tempo in draft.tempos],
        "instruments": draft.instruments,
        "resolution": draft.resolution,
        "parts": [[[whole(note[0]), whole(note[1]), *note[2:]] for note in notes] for notes in draft.parts],
    }


def _unpacked(packed: dict[str, Any]) -> Draft:
    per_quarter = packed["per_quarter"]
    times: dict[int, Fraction] = {}

    def quarters(whole: int) -> Fraction:
        found = times.get(whole)
        if found is None:
            found = times[whole] = Fraction(whole, per_quarter)
        return found

    return Draft(
        bars=[
            DraftBar(quarters(start), None if signature is None else (signature[0], signature[1]), sharps)
            for start, signature, sharps in packed["bars"]
        ],
        end=quarters(packed["end"]),
        parts=[[(quarters(onset), quarters(end), *rest) for onset, end, *rest in notes] for notes in packed["parts"]],
        tempos=[(quarters(when), tempo) for when, tempo in packed["tempos"]],
        instruments=[Instrument(*instrument) for instrument in packed["instruments"]],
        resolution=packed["resolution"],
    )
