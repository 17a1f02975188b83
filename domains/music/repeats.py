"""Repeats played out: in which order the written stretches of a tune sound, and a draft in that order.

The rules are those of the ABC standard 2.1, sections 4.8 (repeats and bar symbols), 4.9 (first and second repeats)
and 3.1.9 (parts): a repeat that nothing begins goes back to the beginning, the last double bar or the end of the last
repeat; an ending lasts to the next double bar or the end of its repeat. After D.C. and D.S. each section is played
once, with its last ending.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from domains.music.piece import Draft, DraftBar

MOST_SPANS = 10_000
"""A tune whose repeats make more stretches than this is not music."""

REPEATS_KEPT = "repeats that make no sense left as written"
"""What is told of a piece whose repeats were to be unfolded, and cannot be."""

START, END, ENDING, DOUBLE = "start", "end", "ending", "double bar"
SEGNO, CODA, FINE, DA_CAPO, DAL_SEGNO = "segno", "coda", "fine", "D.C.", "D.S."

Span: TypeAlias = tuple[Fraction, Fraction]
"""From when to when, in quarters of the written tune."""


class Mark(NamedTuple):
    """A sign for the player.

    Attributes:
        time: Where it stands, in quarters of the written tune.
        kind: One of the constants above.
        times: Of :data:`START` and :data:`END`: how often its section sounds.
        numbers: Of :data:`ENDING`: the times that it is played.
    """

    time: Fraction
    kind: str
    times: int = 2
    numbers: frozenset[int] = frozenset()


class Incoherent(ValueError):
    """The repeats make no sense."""


def play_order(marks: Sequence[Mark], start: Fraction, end: Fraction) -> list[Span]:
    """The stretches between ``start`` and ``end`` in the order in which they sound.

    Raises:
        Incoherent: An ending or a sign that is jumped to is missing, or something would never be played.
    """
    marks = [mark for mark in marks if start <= mark.time <= end]
    sections = _sections([mark for mark in marks if mark.kind in (START, END, ENDING, DOUBLE)], start, end)
    spans = [span for section in sections for span in section.played()]
    jump = next((mark for mark in marks if mark.kind in (DA_CAPO, DAL_SEGNO)), None)
    if jump is not None:
        once = [span for section in sections for span in section.played_last()]
        spans = [*_until_last(spans, jump.time), *_after_jump(once, marks, jump, start)]
    if len(spans) > MOST_SPANS:
        raise Incoherent(f"more than {MOST_SPANS:,} stretches")
    reach = start
    for begin, stop in sorted(spans):
        if begin > reach:
            break
        reach = max(reach, stop)
    if reach < end:
        raise Incoherent("a stretch that is never played")
    return spans


def part_order(written: str) -> list[str]:
    """The letters of a ``P:`` field in the order in which they are played.

    Raises:
        Incoherent: It is not letters, numbers and brackets, or says too much.

    >>> "".join(part_order("A2(BC)3.D"))
    'AABCBCBCD'
    """
    text = re.sub(r"[\s.]", "", written)
    stack: list[list[str]] = [[]]
    for token in re.findall(r"\d+|.", text):
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            stack[-2].append("".join(stack.pop()))
        elif token.isdigit() and stack[-1] and int(token) * len(stack[-1][-1]) <= MOST_SPANS:
            stack[-1][-1] *= int(token)
        elif re.fullmatch(r"[A-Za-z]", token):
            stack[-1].append(token)
        else:
            raise Incoherent(f"the order of parts {written!r}")
    if len(stack) != 1:
        raise Incoherent(f"the order of parts {written!r}")
    return list("".join(stack[0]))


def unfold(draft: Draft, spans: Sequence[Span]) -> Draft:
    """The draft with its stretches in the order of ``spans``; a note that lasts over the end of one is cut there."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        elif end > start:
            joined.append((start, end))
    parts: list[list[Any]] = [[] for _ in draft.parts]
    played = dataclasses.replace(draft, bars=[], parts=list(parts), tempos=[], end=Fraction(0))
    for start, end in joined:
        shift = played.end - start
        played.bars += [
            DraftBar(bar.start + shift, bar.signature, bar.sharps) for bar in draft.bars if start <= bar.start < end
        ]
        before = [change for change in draft.tempos if change[0] <= start]
        if before:
            played.tempos.append((played.end, before[-1][1]))
        played.tempos += [(when + shift, tempo) for when, tempo in draft.tempos if start < when < end]
        for notes, target in zip(draft.parts, parts, strict=True):
            target += [
                (note[0] + shift, min(note[1], end) + shift, *note[2:]) for note in notes if start <= note[0] < end
            ]
        played.end += end - start
    return played


@dataclasses.dataclass(slots=True)
class _Section:
    """A stretch that is played several times, with or without endings.

    Attributes:
        body: What is played each time.
        times: How often, where there are no endings.
        endings: The numbers and the stretch of each.
        open: Whether the last ending is one after which the body comes again, without any ending.
    """

    body: Span
    times: int = 1
    endings: list[tuple[frozenset[int], Span]] = dataclasses.field(default_factory=list)
    open: bool = False

    def played(self) -> list[Span]:
        if not self.endings:
            return [self.body] * min(self.times, MOST_SPANS)
        passes = max(number for numbers, _ in self.endings for number in numbers)
        spans = []
        for number in range(1, passes + 1):
            ending = next((span for numbers, span in self.endings if number in numbers), None)
            if ending is None:
                raise Incoherent(f"no ending for time {number}")
            spans += [self.body, ending]
        return [*spans, self.body] if self.open else spans

    def played_last(self) -> list[Span]:
        if not self.endings or self.open:
            return [self.body]
        return [self.body, max(self.endings, key=lambda ending: max(ending[0]))[1]]


def _sections(marks: Sequence[Mark], start: Fraction, end: Fraction) -> list[_Section]:
    sections: list[_Section] = []
    here, times = start, 1  # where the section begins, and how often its beginning says that it sounds
    body_end: Fraction | None = None
    endings: list[tuple[frozenset[int], Span]] = []
    running: tuple[frozenset[int], Fraction] | None = None
    repeated = False

    def close(time: Fraction) -> None:
        """Ends the section at ``time``, or where its last ending has ended."""
        nonlocal here, times, body_end, running, repeated, endings
        if body_end is not None:
            if running is not None:
                endings.append((running[0], (running[1], time)))
                repeated = False
            # A sign of repetition after a later ending says no more than that it ends.
            sections.append(_Section((here, body_end), 1, endings, repeated and len(endings) == 1))
            here = endings[-1][1][1]
        if body_end is None or here < time:
            sections.append(_Section((here, time)))
        here, times, body_end, running, repeated, endings = time, 1, None, None, False, []

    for mark in marks:
        between = body_end is not None and running is None
        if between and not (mark.kind == ENDING and mark.time == endings[-1][1][1]):
            close(endings[-1][1][1])
        if mark.kind == ENDING:
            if body_end is None:
                body_end = mark.time
            elif running is not None:
                endings.append((running[0], (running[1], mark.time)))
            running = mark.numbers, mark.time
        elif mark.kind == END:
            if running is not None:
                endings.append((running[0], (running[1], mark.time)))
                running, repeated = None, True
            elif mark.time > here:
                sections.append(_Section((here, mark.time), max(times, mark.times)))
                here, times = mark.time, 1
        elif mark.kind == START or mark.time > here:
            close(mark.time)
            times = mark.times if mark.kind == START else 1
    if body_end is not None and running is None:
        close(endings[-1][1][1])
    close(end)
    return [section for section in sections if section.body[1] > section.body[0] or section.endings]


def _until_last(spans: Sequence[Span], time: Fraction) -> list[Span]:
    """The spans as far as the last that reaches ``time``, which ends there."""
    last = max((index for index, (start, end) in enumerate(spans) if start < time <= end), default=None)
    if last is None:
        raise Incoherent("a jump from nowhere")
    return [*spans[:last], (spans[last][0], time)]


def _after_jump(once: Sequence[Span], marks: Sequence[Mark], jump: Mark, start: Fraction) -> list[Span]:
    """What follows D.C. or D.S.: to the Fine, or over the first coda sign to the second, or to the end."""
    where = {kind: [mark.time for mark in marks if mark.kind == kind] for kind in (SEGNO, CODA, FINE)}
    if jump.kind == DAL_SEGNO:
        if not where[SEGNO]:
            raise Incoherent("D.S. without a segno")
        start = where[SEGNO][0]
    if where[FINE]:
        return _within(once, start, where[FINE][0])
    if len(where[CODA]) > 1:
        leave, coda = where[CODA][0], where[CODA][-1]
        return [*_within(once, start, leave), *_within(once, coda, max(end for _, end in once))]
    return _within(once, start, max(end for _, end in once))


def _within(spans: Sequence[Span], start: Fraction, end: Fraction) -> list[Span]:
    cut = [(max(first, start), min(last, end)) for first, last in spans]
    found = [(first, last) for first, last in cut if first < last]
    if not found:
        raise Incoherent("a jump to nowhere")
    return found
