"""Effects of substitutions, such as A42G, by what a masked language model expects in their place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.inference.likelihood import Copy, LanguageModel

ALL = "all"
"""Stands for every single substitution; "all:ACGT" for those by these letters."""

_SUBSTITUTION = re.compile(r"(\D)(\d+)(\D)")


@dataclasses.dataclass(frozen=True, slots=True)
class Substitution:
    """One symbol in the place of another; positions are counted from 1."""

    wild_type: str
    position: int
    mutant: str

    def __str__(self) -> str:
        return f"{self.wild_type}{self.position}{self.mutant}"


Variant = tuple[Substitution, ...]
"""Substitutions that occur together."""


def parse_variants(text: str, source: str) -> list[Variant]:
    """Reads variants with commas or blanks between them; ``:`` joins the substitutions of one.

    Raises:
        DataError: if one is not written so, or two substitutions of one variant are at the same position.

    >>> [str(one) for one in parse_variants("A42G:L7P, K3R", "example")[0]]
    ['A42G', 'L7P']
    """
    variants = []
    for written in re.split(r"[,\s]+", text.strip()):
        substitutions = []
        for part in written.split(":"):
            match = _SUBSTITUTION.fullmatch(part)
            if match is None:
                raise DataError(
                    f'{source}: "{part}" is no substitution. It is the letter that stands there, its position counted '
                    "from 1, and the new letter, as in A42G; several of one variant are joined as in A42G:L7P."
                )
            substitutions.append(Substitution(match[1], int(match[2]), match[3]))
        if len({one.position for one in substitutions}) < len(substitutions):
            raise DataError(f"{source}: the variant {written} has two substitutions at one position.")
        variants.append(tuple(substitutions))
    return variants


def variants_of_file(path: Path) -> list[Variant]:
    """Variants of a text file: one or several a line; blank lines, and those that begin with #, are passed over.

    Raises:
        DataError: if the file cannot be read, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of substitutions: {error}.") from error
    variants: list[Variant] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            variants += parse_variants(line, f"{path}:{number}")
    if not variants:
        raise DataError(f"{path} has no substitutions.")
    return variants


class VariantScorer:
    """Scores variants of sequences by their masked marginals.

    Meier et al. 2021, equation 1: the sum over the substituted positions, all of them masked at once, of the
    log-probability of the mutant less that of the wild type.

    Args:
        model: The language model.

    Raises:
        CheckpointError: if the model is causal.
        ConfigError: if tokens of the domain overlap.
    """

    def __init__(self, model: LanguageModel) -> None:
        if model.causal:
            raise CheckpointError("Substitutions are scored by a masked LM, and this model is causal.")
        if model.overlap:
            raise ConfigError(
                "Substitutions need tokens of one symbol, and those of this run overlap: use a run whose tokens are "
                "single symbols."
            )
        self.model = model

    def encode(self, text: str, source: str) -> np.ndarray:
        """Token ids of canonical text, a symbol each.

        Raises:
            DataError: if tokens are not single symbols.
        """
        domain = self.model.trained.domain
        encoded = domain.encode([text])
        assert encoded.offsets is not None
        starts = np.arange(len(text))
        if not np.array_equal(encoded.offsets, np.stack([starts, starts + 1], axis=1)):
            raise DataError(
                f'{source}: substitutions need a token for each symbol, and those of this run (domain "{domain.name}") '
                "hold several: use a run whose tokens are single symbols."
            )
        return encoded.ids.astype(np.int64)

    def check(self, variant: Variant, text: str, source: str) -> Variant:
        """The variant in the letters of the vocabulary, which are upper case where the user's own have no token.

        Raises:
            DataError: if a position is not in the sequence, something else stands there, or a letter is no symbol.
        """
        checked = []
        for one in variant:
            if not 1 <= one.position <= len(text):
                raise DataError(f"{source}: {one} is at position {one.position}, and the sequence has {len(text)}.")
            here = text[one.position - 1]
            old, new = (self._spelled(letter) for letter in (one.wild_type, one.mutant))
            for letter, known in ((one.wild_type, old), (one.mutant, new)):
                if not known:
                    raise DataError(f'{source}: {one} has "{letter}", and the model has no token for it.')
            if here != old:
                raise DataError(
                    f'{source}: {one} says that "{one.wild_type}" stands at position {one.position}, and there stands '
                    f'"{here}". Positions are counted from 1, without gaps.'
                )
            checked.append(Substitution(old, one.position, new))
        return tuple(checked)

    def every(self, text: str, letters: str) -> list[Variant]:
        """Every substitution of one symbol by another of ``letters``; where that is empty, of the whole vocabulary."""
        alphabet = letters or "".join(self._letters())
        return [
            (Substitution(old, position, new),)
            for position, old in enumerate(text, 1)
            for new in alphabet
            if new != old and self._token(old) is not None
        ]

    def scores(self, ids: np.ndarray, variants: Sequence[Variant]) -> list[float]:
        """A score for each variant, above 0 where the model prefers the mutant."""
        numbers: dict[tuple[int, ...], list[int]] = {}
        for number, variant in enumerate(variants):
            numbers.setdefault(tuple(sorted(one.position for one in variant)), []).append(number)
        copies = []
        for positions in numbers:
            places = np.array(positions) - 1
            copies.append(Copy(0, places, places))
        found = [0.0] * len(variants)
        for copy, rows in self.model.distributions([ids], copies):
            positions = tuple((copy.asked + 1).tolist())
            for number in numbers[positions]:
                for one in variants[number]:
                    row = rows[positions.index(one.position)]
                    old, new = self._token(one.wild_type), self._token(one.mutant)
                    assert old is not None and new is not None
                    found[number] += float(row[new] - row[old])
        return found

    def letters_of(self, mutations: str) -> str:
        """The letters of "all:LETTERS", as the vocabulary spells them.

        Raises:
            DataError: if the model has no token for one.
        """
        found: dict[str, None] = {}
        for letter in mutations.partition(":")[2]:
            known = self._spelled(letter)
            if not known:
                raise DataError(f'{mutations}: the model has no token for "{letter}".')
            found[known] = None
        return "".join(found)

    def _letters(self) -> Iterator[str]:
        """Symbols that have tokens of their own, in the order of the vocabulary."""
        vocabulary = self.model.trained.domain.vocabulary.get_vocab()
        for token in sorted(vocabulary, key=vocabulary.__getitem__):
            if len(token) == 1 and self._token(token) is not None:
                yield token

    def _spelled(self, letter: str) -> str:
        """The letter, or its capital, if it has a token; else nothing."""
        return next((spelled for spelled in (letter, letter.upper()) if self._token(spelled) is not None), "")

    def _token(self, letter: str) -> int | None:
        number = self.model.trained.domain.vocabulary.token_to_id(letter)
        return number if number is not None and self.model.is_ordinary(np.array([number]))[0] else None
