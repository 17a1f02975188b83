"""The other strand: of text, and of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from seqbert.errors import DataError

BASES = "ATCG"
"""The four bases of DNA, in the order in which the vocabularies of DNABERT (Ji et al. 2021) count."""

BASES_OF = {"dna": BASES, "rna": BASES.replace("T", "U")}
"""The four bases of each alphabet."""

AMBIGUOUS = "NRYSWKMBDHV"
"""The IUPAC codes for more than one base (NC-IUB 1984)."""

_COMPLEMENTS = {
    "dna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCAAYRSWMKVHDBNtgcaayrswmkvhdbn"),
    "rna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "UGCAAYRSWMKVHDBNugcaayrswmkvhdbn"),
}
_NO_COMPLEMENT = re.compile(r"[^ACGTURYSWKMBDHVNacgturyswkmbdhvn.\-]")


def reverse_complement(sequence: str, alphabet: Literal["dna", "rna"] = "dna") -> str:
    """The other strand, read in its own direction. Case is kept, and ambiguity codes get their complements.

    Args:
        sequence: Nucleotides, IUPAC codes, and the gaps - and ., which stay what they are.
        alphabet: Whether A pairs with T or with U in what is returned.

    Raises:
        DataError: A character is no nucleotide.

    >>> reverse_complement("ACHVTWN")
    'NWABDGT'
    >>> reverse_complement("GGAU", "rna")
    'AUCC'
    """
    if wrong := _NO_COMPLEMENT.search(sequence):
        raise DataError(f"There is no reverse complement: {problem(wrong[0], wrong.start() + 1)}.")
    return sequence.translate(_COMPLEMENTS[alphabet])[::-1]


def complements(vocabulary: dict[str, int], alphabet: Literal["dna", "rna"]) -> np.ndarray:
    """The id of each token's reverse complement, ``[vocabulary]``; one that spells no bases is its own."""
    ids = np.arange(max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        if not _NO_COMPLEMENT.search(token):
            ids[index] = vocabulary.get(reverse_complement(token, alphabet), index)
    return ids


def problem(character: str, place: int) -> str:
    """What is wrong with a character at a place that counts from 1."""
    return f"{character!r} at position {place} of the sequence is no nucleotide"


Turn: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Tokens of a stretch -> those of the other strand, and for each of these the place of the one that it stems from."""


class OtherStrand:
    """The change of the augmentation ``reverse_complement``: variant 0 is the strand itself, 1 the other one.

    Special tokens around a sequence stay where they are. One inside it, such as [MASK], moves to the place that it
    has on the other strand.

    Args:
        special: Whether each id is a special token, ``[vocabulary]``.
        turn: Turns a stretch of tokens that are not special.
    """

    def __init__(self, special: np.ndarray, turn: Turn) -> None:
        self._special = special
        self._turn = turn

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        """The new ids, of the type that they had, and for each the place of the old token that it stems from."""
        places = np.arange(len(ids))
        special = self._special[ids]
        if variant == 0 or special.all():
            return ids, places
        first, last = int(special.argmin()), len(ids) - int(special[::-1].argmin())
        turned, source = self._turned(ids[first:last], special[first:last])
        return (
            np.concatenate([ids[:first], turned, ids[last:]]).astype(ids.dtype, copy=False),
            np.concatenate([places[:first], first + source, places[last:]]),
        )

    def _turned(self, ids: np.ndarray, special: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not special.any():
            return self._turn(ids)
        edges = np.flatnonzero(np.diff(special.astype(np.int8))) + 1
        ids_of, places_of = np.split(ids, edges), np.split(np.arange(len(ids)), edges)
        turned: list[np.ndarray] = []
        source: list[np.ndarray] = []
        for stretch, places in zip(reversed(ids_of), reversed(places_of), strict=True):
            if self._special[stretch[0]]:
                turned.append(stretch[::-1])
                source.append(places[::-1])
            else:
                new, old = self._turn(stretch)
                turned.append(new)
                source.append(places[0] + old)
        return np.concatenate(turned), np.concatenate(source)
