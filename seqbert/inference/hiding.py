"""Which tokens ``--mask bar:5`` hides: units of a document, counted from 1."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from seqbert.domain import SPECIAL_TOKENS, Domain
from seqbert.errors import ConfigError, DataError, nearest
from seqbert.inference.grammar import Grammar

_MASK = re.compile(r"([^\s:]+):(\d+)(?:-(\d+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Units that are to be hidden, the first and the last, counted from 1 within the document."""

    unit: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.unit}:{self.first}" if self.first == self.last else f"{self.unit}:{self.first}-{self.last}"


def parse_stretch(text: str) -> Stretch:
    """Reads UNIT:N or UNIT:N-M.

    Raises:
        ConfigError: It is not written so, or there is no such stretch.

    >>> str(parse_stretch("bar:5-6"))
    'bar:5-6'
    """
    match = _MASK.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f'--mask "{text}" is not understood: it is a unit and its number counted from 1, such as bar:5, or the '
            "first and the last of several, such as bar:5-8."
        )
    first, last = int(match[2]), int(match[3] or match[2])
    if first < 1 or last < first:
        raise ConfigError(f'--mask "{text}": units are counted from 1, and the first of several comes first.')
    return Stretch(match[1], first, last)


@dataclasses.dataclass(slots=True)
class Tokens:
    """The tokens of a document.

    Attributes:
        domain: Its domain, with the tokenizer that is in use.
        segments: The document's segments.
        ids: Their tokens, end to end, ``[tokens]`` int64.
        edges: Where the tokens of each segment begin, and the end, ``[segments + 1]``.
        units: Number of the masking unit of each token, from 0 through the whole document, ``[tokens]``; None where the
            domain has none.
    """

    domain: Domain
    segments: list[str]
    ids: np.ndarray
    edges: np.ndarray
    units: np.ndarray | None

    @classmethod
    def of(cls, segments: Sequence[str], domain: Domain) -> Tokens:
        """Encodes segments; their units are counted on from each to the next."""
        encoded = domain.encode(list(segments), offsets=False)
        edges = np.concatenate([[0], np.cumsum(encoded.lengths)])
        units = None
        if domain.unit != "token" and encoded.units is not None:
            units, base = encoded.units.astype(np.int64), 0
            for low, high in pairwise(edges.tolist()):
                if high > low:
                    units[low:high] += base
                    base = int(units[high - 1]) + 1
        return cls(domain, list(segments), encoded.ids.astype(np.int64), edges, units)

    def hidden(self, stretches: Sequence[Stretch], grammar: Grammar | None = None) -> np.ndarray:
        """Places of what these stretches hide, rising, ``[hidden]``: of tokens, or of symbols where tokens overlap.

        Where they overlap, a token stands for the symbol that it begins with, and the last one of a segment for all of
        its symbols. What makes a unit that unit, such as the word that begins a bar, stays.

        Raises:
            ConfigError: The domain has no such unit.
            DataError: The document has fewer of them.
        """
        overlaps = self.domain.overlap > 0
        chosen = np.zeros(sum(map(len, self.segments)) if overlaps else len(self.ids), bool)
        for stretch in stretches:
            first, last = self._numbers(stretch.unit, str(stretch))
            count = int(last.max()) + 1 if len(last) else 0
            if stretch.last > count:
                raise DataError(
                    f"--mask {stretch}: the document has {count:,} {stretch.unit}{'' if count == 1 else 's'}, and they "
                    "are counted from 1."
                )
            own = (first < stretch.last) & (last >= stretch.first - 1) & (last >= first)
            if overlaps and stretch.unit != self.domain.symbol:
                for start, end in zip(*(edge[own] for edge in self._symbols()), strict=True):
                    chosen[start : end + 1] = True
            elif overlaps:
                chosen[stretch.first - 1 : stretch.last] = True
            elif grammar is not None and stretch.unit == self.domain.unit:
                chosen |= own & ~grammar.frames(self.ids)
            else:
                chosen |= own
        return np.flatnonzero(chosen)

    def within_units(self) -> Callable[[int], np.ndarray | None]:
        """For a place, which tokens keep the units where they are: the first of a unit begins one, and no other does.

        Whether a token begins a unit is seen by what the domain makes of it behind the first token of another one.
        ``[vocabulary]`` bool; None where units do not depend on what the tokens are.
        """
        if self.units is None or self.domain.overlap or not len(self.ids):
            return lambda place: None
        first = np.diff(self.units, prepend=-1) > 0
        vocabulary = self.domain.vocabulary
        tokens = [number for word, number in vocabulary.get_vocab().items() if word not in SPECIAL_TOKENS]
        encoded = self.domain.encode(
            [self.domain.decode([int(self.ids[0]), number]) for number in tokens], offsets=False
        )
        assert encoded.units is not None
        begins = np.zeros(max(tokens) + 1, bool)
        ends = np.cumsum(encoded.lengths)
        for number, end, length in zip(tokens, ends.tolist(), encoded.lengths.tolist(), strict=True):
            begins[number] = length > 1 and encoded.units[end - 1] > 0
        if not begins.any():
            return lambda place: None
        return lambda place: begins if first[place] else ~begins

    def _numbers(self, unit: str, asked: str) -> tuple[np.ndarray, np.ndarray]:
        """First and last unit of each token, counted from 0; the last is the lower one where it has none."""
        if unit == "token":
            return np.arange(len(self.ids)), np.arange(len(self.ids))
        if unit == self.domain.unit and self.units is not None:
            return self.units, self.units
        if unit == self.domain.symbol:
            return self._symbols()
        known = [*({self.domain.unit} - {"token"}), self.domain.symbol, "token"]
        raise ConfigError(
            f'--mask {asked}: the domain "{self.domain.name}" has no unit "{unit}": it has {", ".join(known)}.'
            f"{nearest(unit, known)}"
        )

    def _symbols(self) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`_numbers`, of symbols; what an unknown token stands for counts as one."""
        if self.domain.overlap:
            starts, ends, base = np.zeros_like(self.ids), np.zeros_like(self.ids), 0
            for segment, (low, high) in zip(self.segments, pairwise(self.edges.tolist()), strict=True):
                starts[low:high] = ends[low:high] = base + np.arange(high - low)
                base += len(segment)
                if high > low:
                    ends[high - 1] = base - 1
            return starts, ends
        vocabulary = self.domain.vocabulary
        found, place = np.unique(self.ids, return_inverse=True)
        spelled = [vocabulary.id_to_token(number) or "" for number in found.tolist()]
        sizes = np.array([0 if token in SPECIAL_TOKENS else self.domain.symbols(token) for token in spelled], np.int64)
        sizes[found == vocabulary.token_to_id(SPECIAL_TOKENS[1])] = 1
        ends = np.cumsum(sizes[place])
        return ends - sizes[place], ends - 1
