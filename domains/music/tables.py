"""Labelled tables of the music sample, the fiddle tunes of Ryan's Mammoth Collection.

==============  ===========================================================================================
classification  the metre of two bars whose time signature was taken out
regression      the height at which two bars lie: the mean MIDI number of their notes
tagging         the degree of each note in the major scale of the key signature: 1 to 7, or "chromatic"
span            the highest note of two bars
choice          which of four bars ends the tune
==============  ===========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import numpy as np

from domains.music.piece import parse
from domains.tables import Table, by_task, choice, evenly, example, sample_documents
from seqbert.domain import Document, Domain, Example

_MOST = 800
_ROOM = 61  # words, that with three special tokens make 64
_QUESTION = "Pitch_127"
_FEWEST_NOTES = 6
_METRES = {"2/4", "2/2", "4/4", "6/8", "9/8"}
_SIGNATURE = re.compile(r" Numerator_(\d+) Denominator_(\d+)")
_KEY = re.compile(r"KeySignature_(-?\d+)")
_PITCH = re.compile(r"Pitch_(\d+)")
_DEGREES = {0: "1", 2: "2", 4: "3", 5: "4", 7: "5", 9: "6", 11: "7"}


def sample_tables(domain: Domain) -> dict[str, Table]:
    """The tables of the sample by the name of the task that each is for."""
    return by_task(domain, classification, regression, tagging, span, choices)


def notes(text: str) -> np.ndarray:
    """Start and end of every Pitch word, ``[notes, 2]``.

    >>> notes("Bar Part_0 Position_0 Pitch_60 Duration_24").tolist()
    [[22, 30]]
    """
    return np.array([match.span() for match in _PITCH.finditer(text)], np.int64).reshape(-1, 2)


def classification(domain: Domain) -> Iterator[Example]:
    """Two whole bars, without the words that say how long they are."""
    for number, (document, text) in enumerate(_two_bars(domain)):
        signature = _SIGNATURE.search(text)
        metre = "/".join(signature.groups()) if signature is not None else ""
        if metre in _METRES:
            yield example(number, document, (_SIGNATURE.sub("", text),), metre)


def regression(domain: Domain) -> Iterator[Example]:
    """Two bars, with the mean of their pitches."""
    for number, (document, text) in enumerate(_two_bars(domain)):
        yield example(number, document, (text,), float(np.mean(_pitches(text))))


def tagging(domain: Domain) -> Iterator[Example]:
    """Two bars, a label a note. A key signature of s sharps is that of the major scale on 7 s semitones."""
    for number, (document, text) in enumerate(_two_bars(domain)):
        key = _KEY.search(text)
        if key is not None:
            tonic = 7 * int(key[1])
            labels = [_DEGREES.get((pitch - tonic) % 12, "chromatic") for pitch in _pitches(text)]
            yield example(number, document, (text,), labels)


def span(domain: Domain) -> Iterator[Example]:
    """Two bars with one highest note; the answer is its pitch. The question is the highest pitch of all, 127."""
    for number, (document, text) in enumerate(_two_bars(domain)):
        pitches = _pitches(text)
        if pitches.count(max(pitches)) == 1:
            highest = notes(text)[pitches.index(max(pitches))]
            answer = (int(highest[0]), int(highest[1]))
            yield example(number, document, (_QUESTION, text), [answer])


def choices(domain: Domain) -> Iterator[Example]:
    """The last bar of a tune and three from inside it; the context is the last but one."""
    number = count()
    for document in sample_documents(domain):
        bars = _bars(document, 1)
        wrong = evenly(bars[1:-2], 3)
        if len(wrong) == 3 and max(map(_words, (*wrong, bars[-1]))) + _words(bars[-2]) <= _ROOM:
            yield choice(next(number), document, bars[-2], bars[-1], wrong)


def _two_bars(domain: Domain) -> list[tuple[Document, str]]:
    """Stretches of two bars of equal length that are short enough and hold some notes."""
    found = [(document, text) for document in sample_documents(domain) for text in _bars(document, 2)]
    return evenly(
        [
            (document, text)
            for document, text in found
            if text.count("Bar") == 2
            and "Length_" not in text
            and _words(text) + _words(_QUESTION) <= _ROOM
            and len(_pitches(text)) >= _FEWEST_NOTES
        ],
        _MOST,
    )


def _bars(document: Document, size: int) -> list[str]:
    """A document in stretches of so many bars, each with its signatures."""
    return parse(" ".join(document.segments)).segments(size)


def _pitches(text: str) -> list[int]:
    return [int(pitch) for pitch in _PITCH.findall(text)]


def _words(text: str) -> int:
    return text.count(" ") + 1
