"""Scores through tokens and back: does the rebuilt score have the notes of the source?

Each piece is read, encoded, decoded, written as MusicXML (as MIDI, where the source is MIDI) and as MIDI, and

- the tokens of the decoded text must be those that were decoded;
- the file that was written is read and encoded again: the tokens must be the same (of MIDI the notes, for MIDI has no
  pick-up bars and no grace notes);
- the notes of the written file, as music21 reads MusicXML and symusic reads MIDI, are compared with the notes of the
  source, as they read that. A note is its onset and its duration, in exact quarters, and its pitch.

What is not equal is counted by its kind. Neither side of the comparison is read by this project. ABC is read by
music21, which misreads some of it: it loses a note without a length before "::" and what follows the sign at once,
joins a tie between two pitches to one note, and joins no ties of chords. Where --abc2midi names that program (Debian's
package abcmidi), it reads these tunes as well: notes that it reads as they are in the rebuilt score, and music21 does
not, are counted apart.

    python benchmarks/roundtrip.py tunes/ pieces/ corpus:chorales:300 --abc2midi /usr/bin/abc2midi --json table.json
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

from domains.music import Music
from domains.music.containers import score_format
from domains.music.corpus import corpus_folder
from seqbert.domain import Document, Report
from seqbert.errors import SeqbertError

GRID = 24
"""Steps in a quarter: the grid of the domain's default options."""

Notes = Counter[tuple[Fraction, Fraction, int]]
"""How often there is a note of an onset, a duration (0: a grace note) and a pitch."""


class Source(NamedTuple):
    """A file, or a tune of an ABC book."""

    path: Path
    kind: str
    number: str = ""
    text: str = ""


def main() -> None:
    """Prints the table, or writes it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sets", nargs="+", help="folders or files; corpus:chorales:N for N chorales of music21's corpus"
    )
    parser.add_argument("--limit", type=int, help="at most so many pieces of each set, spread evenly")
    parser.add_argument("--abc2midi", help="the program abc2midi, a second reader of ABC")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the table; standard output otherwise")
    arguments = parser.parse_args()
    table = {}
    for name in arguments.sets:
        sources = spread(list(sources_of(name)), arguments.limit)
        table[name] = compare(sources, arguments.abc2midi, arguments.processes)
        print(name, json.dumps(table[name], indent=2), file=sys.stderr)
    text = json.dumps(table, indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


def sources_of(name: str) -> Iterator[Source]:
    """The pieces of a set; a book of ABC is cut at its X: fields."""
    if name.startswith("corpus:chorales"):
        files = sorted((corpus_folder() / "bach").glob("bwv*.mxl"))
        files = spread(files, int(name.rpartition(":")[2]))
    elif Path(name).is_dir():
        files = sorted(path for path in Path(name).rglob("*") if path.is_file())
    else:
        files = [Path(name)]
    for path in files:
        kind = score_format(path)
        if kind == "abc":
            book = path.read_text("latin-1").replace("\r\n", "\n")
            for tune in re.split(r"^(?=X:)", book, flags=re.MULTILINE)[1:]:
                yield Source(path, kind, tune[2:].partition("\n")[0].strip(), tune)
        elif kind is not None:
            yield Source(path, kind)


def spread(items: list[Any], most: int | None) -> list[Any]:
    """At most so many of the items, spread evenly."""
    if most is None or len(items) <= most:
        return items
    return [items[index * len(items) // most] for index in range(most)]


def compare(sources: list[Source], abc2midi: str | None, processes: int) -> dict[str, Any]:
    """The table of one set."""
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    remainder: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    largest = 0.0
    jobs = [(source, abc2midi) for source in sources]
    with multiprocessing.Pool(processes) as pool:
        for found in pool.imap_unordered(one, jobs, chunksize=4):
            counts.update(found["counts"])
            remainder.update(found["remainder"])
            largest = max(largest, found["largest onset error"])
            for kind in found["remainder"]:
                examples.setdefault(kind, []).append(found["source"])
    notes = max(counts["notes in the source"], 1)
    right = counts["equal"] + counts["equal on the grid"] + counts["equal, as abc2midi reads the source"]
    return {
        **counts,
        "share equal": round(right / notes, 6),
        "remainder": dict(remainder.most_common()),
        "examples": {kind: sorted(set(found))[:3] for kind, found in examples.items()},
        "largest onset error in quarters": round(largest, 6),
        "seconds": round(time.perf_counter() - started, 1),
    }


def one(job: tuple[Source, str | None]) -> dict[str, Any]:
    """What became of one piece."""
    source, abc2midi = job
    name = f"{source.path.name}:{source.number}" if source.number else source.path.name
    found: dict[str, Any] = {"source": name, "counts": Counter(pieces=1), "remainder": Counter()}
    found["largest onset error"] = 0.0
    counts = found["counts"]
    domain = Music()
    domain.use(domain.tokenizer([], None))
    with tempfile.TemporaryDirectory() as folder, silence():
        report = Report()
        document = read(source, domain, report, Path(folder))
        if document is None:
            counts["pieces skipped by the reader"] += 1
            return found
        try:
            expected = notes_of(source)
        except Exception:  # music21 raises all kinds
            counts["pieces that music21 cannot read"] += 1
            return found
        ids = domain.encode(document.segments, offsets=False).ids.tolist()
        text = domain.decode(ids)
        counts["decoded and encoded again: same tokens"] += domain.encode([text], offsets=False).ids.tolist() == ids
        kinds = (".mid",) if source.kind == "midi" else (".musicxml", ".mid")
        written = {}
        for ending in kinds:
            path = Path(folder, f"again{ending}")
            domain.write(text, path)
            written[ending] = written_notes(path)
            again = list(domain.read(path, Report()))
            same = len(again) == 1 and domain.encode(again[0].segments, offsets=False).ids.tolist() == ids
            counts[f"written as {ending} and read again: same tokens"] += same
        rebuilt = written[kinds[0]]
        counts["notes in the source"] += expected.total()
        counts["notes rebuilt"] += rebuilt.total()
        if source.kind != "midi":
            sounding = Counter({note: n for note, n in rebuilt.items() if note[1]})
            counts["notes with a duration"] += sounding.total()
            counts["of these in the MIDI file"] += (sounding & written[".mid"]).total()
        found["largest onset error"] = report.most.get("largest onset error in quarters", 0.0)
        classify(source, expected, rebuilt, abc2midi, Path(folder), found)
    return found


def read(source: Source, domain: Music, report: Report, folder: Path) -> Document | None:
    """The document of a source."""
    path = source.path
    if source.text:
        path = folder / "tune.abc"
        path.write_text(source.text, encoding="utf-8")
    try:
        return next(iter(domain.read(path, report)), None)
    except SeqbertError:
        return None


def classify(
    source: Source, expected: Notes, rebuilt: Notes, abc2midi: str | None, folder: Path, found: dict[str, Any]
) -> None:
    """Counts the notes of the source that are in the rebuilt score, and the others by their kind."""
    counts, remainder = found["counts"], found["remainder"]
    equal = expected & rebuilt
    counts["equal"] += equal.total()
    missing, extra = expected - equal, rebuilt - equal
    if missing and source.kind == "abc" and abc2midi:
        arbiter = abc2midi_notes(source.text, abc2midi, folder)
        sounding = Counter({on_grid(note): n for note, n in rebuilt.items() if note[1]})
        disputed = min((sounding - arbiter).total() + (arbiter - sounding).total(), missing.total())
        counts["pieces that music21 reads otherwise"] += 1
        counts["equal, as abc2midi reads the source"] += missing.total() - disputed
        if disputed:
            remainder["ABC that abc2midi reads otherwise too"] += disputed
        return
    for note, number in list(missing.items()):
        _, duration, pitch = note
        placed = on_grid(note)
        kept = min(number, extra[placed])
        if kept:
            counts["equal on the grid"] += kept
            extra[placed] -= kept
            number -= kept
        if not number:
            continue
        again = [other for other in rebuilt if other[2] == pitch and other[1] and other[0] == placed[0]]
        if not duration:
            kind = "grace notes"
        elif any(pieces_of(other, missing) for other in rebuilt if other[2] == pitch and within(placed, other)):
            kind = "tied in a chord, which music21 does not join"
        elif any(other[1] > placed[1] for other in again) or (again and expected_twice(expected, note)):
            kind = "unisons: doubles a note of its part"
        elif any(other[1] < placed[1] for other in again):
            kind = "cut where its pitch begins again in its part"
        else:
            kind = "other"
        remainder[kind] += number
    if +extra:
        counts["notes rebuilt that the source has not, or otherwise"] += (+extra).total()


def within(note: tuple[Fraction, Fraction, int], longer: tuple[Fraction, Fraction, int]) -> bool:
    """Whether a note lies within a longer one."""
    return longer[0] <= note[0] and note[0] + note[1] <= longer[0] + longer[1] and note[1] < longer[1]


def pieces_of(tied: tuple[Fraction, Fraction, int], notes: Notes) -> bool:
    """Whether notes of its pitch follow each other through the whole of a note."""
    pieces = sorted(note for note in notes if note[2] == tied[2] and note[1] and within(note, tied))
    ends = [tied[0], *(onset + duration for onset, duration, _ in pieces)]
    return [onset for onset, _, _ in pieces] == ends[:-1] and ends[-1] == tied[0] + tied[1]


def expected_twice(expected: Notes, note: tuple[Fraction, Fraction, int]) -> bool:
    """Whether several notes of this pitch have the same onset in the source, on the grid."""
    onset = on_grid(note)[0]
    return sum(n for other, n in expected.items() if other[2] == note[2] and on_grid(other)[0] == onset) > 1


def on_grid(note: tuple[Fraction, Fraction, int]) -> tuple[Fraction, Fraction, int]:
    """A note with its onset and end at the nearest step, and one step long at least, as the default grid has it."""
    onset, duration, pitch = note
    begin, end = (Fraction(floor(time * GRID + Fraction(1, 2)), GRID) for time in (onset, onset + duration))
    return begin, max(end - begin, Fraction(1, GRID)) if duration else Fraction(0), pitch


def notes_of(source: Source) -> Notes:
    """The notes of a source, by a reader that is not this project's."""
    if source.kind == "midi":
        return symusic_notes(source.path)
    if source.kind == "abc":
        from music21 import abcFormat

        # Without a version, music21 lets accidentals end with their note, as no version of ABC has it.
        to_score: Any = abcFormat.translate.abcToStreamScore
        return music21_notes(to_score(abcFormat.ABCFile().readstr("%abc-2.1\n" + source.text)))
    return written_notes(source.path)


def written_notes(path: Path) -> Notes:
    """The notes of a file in another format than ABC."""
    from music21 import converter

    if path.suffix == ".mid":
        return symusic_notes(path)
    return music21_notes(converter.parse(path, forceSource=True))


def music21_notes(score: Any) -> Notes:
    """The pitched notes of a music21 score at sounding pitch, whose ties music21 has joined."""
    from music21 import harmony

    found: Notes = Counter()
    for part in score.parts or [score]:
        for element in part.toSoundingPitch().stripTies().flatten().notes:
            if isinstance(element, harmony.Harmony):
                continue
            duration = Fraction(0) if element.duration.isGrace else Fraction(element.quarterLength)
            for pitch in element.pitches:
                found[Fraction(element.offset), duration, pitch.midi] += 1
    return found


def symusic_notes(path: Path) -> Notes:
    """The notes of a MIDI file but those on the channel of drums."""
    import symusic

    score: Any = symusic.Score(str(path))
    quarter = score.ticks_per_quarter
    return Counter(
        (Fraction(note.time, quarter), Fraction(note.duration, quarter), note.pitch)
        for track in score.tracks
        if not track.is_drum
        for note in track.notes
    )


def abc2midi_notes(text: str, program: str, folder: Path) -> Notes:
    """What abc2midi plays of a tune whose signs of repetition are taken out, without accompaniment and ornaments.

    It swings hornpipes, makes rolls of "~" and rolls chords off; all that is turned off.
    """
    header, _, body = text.partition("\nK:")
    lines = [
        line
        for line in (header + "\n%%MIDI gchordoff\n%%MIDI chordattack 0\nK:" + body).split("\n")
        if line[:2] != "R:"
    ]
    written = re.sub(r"~|![^!|\n]*!", "", "\n".join(lines))
    written = re.sub(r"[:|\]]*\|[:|\]]*(?:\[?\d[\d,.-]*)?|::|\[\d[\d,.-]*", "|", written)
    path, midi = folder / "arbiter.abc", folder / "arbiter.mid"
    path.write_text(written, encoding="utf-8")
    subprocess.run([program, str(path), "-o", str(midi), "-silent"], capture_output=True, check=False)
    found: Notes = Counter()
    for note, number in symusic_notes(midi).items():
        found[on_grid(note)] += number
    return found


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """music21 and symusic remark on odd scores."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


if __name__ == "__main__":
    main()
