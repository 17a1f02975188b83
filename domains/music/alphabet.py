"""The words of canonical music text, and the numbers that they can say.

The vocabulary is that of REMI (Huang & Yang 2020, "Pop Music Transformer", section 3) with the additions that
a score needs: parts, key signatures, bars of irregular length, any time signature, and grace notes. It is
fixed, and no time is too long for it: a number beyond :data:`LIMIT` is written as a sum.

==================================  ===================================================================
``Bar``                             a new bar begins
``Numerator_6 Denominator_8``       the time signature from this bar on
``Length_24``                       this bar lasts 24 ticks, not what its time signature says
``KeySignature_-2``                 sharps (or, below zero, flats) from this bar on
``Position_36``                     36 ticks into the bar, for the words that follow
``Tempo_120``                       quarters a minute from this position on
``Part_1``                          the words that follow belong to this part of the score
``Pitch_60 Duration_24``            a note: MIDI number, and ticks; ``Duration_0`` is a grace note
``Velocity_96``                     by option, after ``Pitch``: how hard the note is struck
``Program_40``                      by option, after ``Part``: who plays the part, once a segment
``Drum_38 Duration_6``              by option: a drum by its General MIDI number, never transposed
==================================  ===================================================================

A tick is 1/24 of a quarter note. ``Position``, ``Duration`` and ``Length`` words side by side add up. A bar
whose time signature has no words (a numerator over 64, a denominator over 32) says its length instead.
"""

from __future__ import annotations

from collections.abc import Iterator

TICKS_PER_QUARTER = 24
LIMIT = 192
"""The largest position, duration and length that is one word: eight quarters."""

PITCHES = range(128)
PARTS = range(32)
NUMERATORS = range(1, 65)
DENOMINATORS = (1, 2, 4, 8, 16, 32)
KEYS = range(-7, 8)
TEMPO_STEP = 4
TEMPOS = range(20, 321, TEMPO_STEP)
PROGRAMS = range(128)
DRUMS = 128
"""In the place of a program: what is played are the drums of General MIDI's tenth channel."""
VELOCITIES = range(1, 128)


def words(velocity_bins: int = 0, instruments: bool = False, drums: bool = False) -> list[str]:
    """Every word, in the order of the vocabulary; the optional ones stand last, so that the others keep their ids."""
    said = sorted({velocity_of_bin(velocity, velocity_bins) for velocity in VELOCITIES}) if velocity_bins else ()
    return [
        *_words(),
        *(f"Velocity_{n}" for n in said),
        *(f"Program_{n}" for n in PROGRAMS if instruments),
        *(f"Drum_{n}" for n in PITCHES if drums),
    ]


def _words() -> list[str]:
    return [
        "Bar",
        *(f"Numerator_{n}" for n in NUMERATORS),
        *(f"Denominator_{n}" for n in DENOMINATORS),
        *(f"Length_{n}" for n in range(1, LIMIT + 1)),
        *(f"KeySignature_{n}" for n in KEYS),
        *(f"Tempo_{n}" for n in TEMPOS),
        *(f"Part_{n}" for n in PARTS),
        *(f"Position_{n}" for n in range(LIMIT + 1)),
        *(f"Pitch_{n}" for n in PITCHES),
        *(f"Duration_{n}" for n in range(LIMIT + 1)),
    ]


WORDS = frozenset([*words(0, True, True), *(f"Velocity_{n}" for n in VELOCITIES)])
"""The words under any options, to look one up."""


FRAME = frozenset({"Bar", "Numerator", "Denominator", "Length", "longest Length", "KeySignature"})
"""The kinds of words that say when a bar begins, how long it is and in which key."""

_IN_BAR = frozenset({"Position", "Part", "Bar"})
_BEHIND = {
    "Bar": frozenset({"Numerator", "Length", "KeySignature"}) | _IN_BAR,
    "Numerator": frozenset({"Denominator"}),
    "Denominator": frozenset({"Length", "KeySignature"}) | _IN_BAR,
    "Length": frozenset({"KeySignature"}) | _IN_BAR,
    "KeySignature": _IN_BAR,
    "Tempo": _IN_BAR,
    "Part": frozenset({"Program", "Position"}),
    "Program": frozenset({"Position"}),
    "Position": frozenset({"Tempo", "Pitch", "Drum"}),
    "Pitch": frozenset({"Velocity", "Duration"}),
    "Drum": frozenset({"Velocity", "Duration"}),
    "Velocity": frozenset({"Duration"}),
    "Duration": frozenset({"Pitch", "Drum"}) | _IN_BAR,
}
_AMOUNTS = ("Length", "Position", "Duration")
_LONGEST = "longest "


def kind_of(word: str) -> str:
    """The kind of a word; a number of ticks that another may be added to, because it is the largest, is one of its own.

    >>> kind_of("Pitch_60"), kind_of("Duration_24"), kind_of("Duration_192")
    ('Pitch', 'Duration', 'longest Duration')
    """
    kind, _, number = word.partition("_")
    return _LONGEST + kind if kind in _AMOUNTS and number == str(LIMIT) else kind


def _with_longest(kinds: frozenset[str]) -> frozenset[str]:
    return kinds | {_LONGEST + kind for kind in kinds if kind in _AMOUNTS}


FOLLOWS = {kind: _with_longest(behind) for kind, behind in _BEHIND.items()} | {
    _LONGEST + kind: _with_longest(_BEHIND[kind] | {kind}) for kind in _AMOUNTS
}
"""Which kinds of words follow each other in canonical text."""


def amount(kind: str, ticks: int) -> Iterator[str]:
    """The words that say a number of ticks: one, or several that add up to it.

    >>> list(amount("Duration", 24)), list(amount("Position", 200))
    (['Duration_24'], ['Position_192', 'Position_8'])
    """
    while ticks > LIMIT:
        yield f"{kind}_{LIMIT}"
        ticks -= LIMIT
    yield f"{kind}_{ticks}"


def bar_ticks(signature: tuple[int, int]) -> int:
    """How many ticks a bar of a time signature lasts.

    >>> bar_ticks((6, 8))
    72
    """
    numerator, denominator = signature
    return 4 * TICKS_PER_QUARTER * numerator // denominator


def signature_of(ticks: int) -> tuple[int, int] | None:
    """The time signature, in quarters or finer, of a bar that lasts so many ticks; None where there is none.

    >>> signature_of(24), signature_of(36), signature_of(7)
    ((1, 4), (3, 8), None)
    """
    for denominator in (4, 8, 16, 32):
        numerator, rest = divmod(ticks * denominator, 4 * TICKS_PER_QUARTER)
        if not rest and numerator in NUMERATORS:
            return numerator, denominator
    return None


def nearest_tempo(quarters_a_minute: float) -> int:
    """The tempo word's number that is nearest to a tempo.

    >>> nearest_tempo(119.0), nearest_tempo(1.0), nearest_tempo(999.0)
    (120, 20, 320)
    """
    steps = round(quarters_a_minute / TEMPO_STEP) * TEMPO_STEP
    return min(max(steps, TEMPOS[0]), TEMPOS[-1])


def velocity_of_bin(velocity: int, bins: int) -> int:
    """The velocity that stands for all in its bin; the bins are evenly wide, and the loudest of each is its name.

    >>> [velocity_of_bin(velocity, 4) for velocity in (1, 31, 63, 64, 96, 127)]
    [31, 31, 63, 95, 127, 127]
    """
    return 127 * -(-velocity * bins // 127) // bins if bins < 127 else velocity


def transposed_key(sharps: int, semitones: int) -> int:
    """The key signature after a shift: a semitone is seven steps on the circle of fifths, wrapped to -5..6.

    >>> transposed_key(0, 2), transposed_key(0, 1), transposed_key(-3, 3), transposed_key(7, 0)
    (2, -5, 6, 7)
    """
    return (sharps + 7 * semitones + 5) % 12 - 5 if semitones else sharps
