"""A domain for tests whose sequences may be read from either end, with letters that pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from letters import ALPHABET, Letters

from seqbert.domain import SPECIAL_TOKENS, Augmentation

FIRST = len(SPECIAL_TOKENS)


@dataclasses.dataclass(frozen=True, slots=True)
class Mirror:
    """The other strand, read in its own direction: a pairs with j, b with i and so on."""

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        source = np.arange(len(ids))
        if not variant:
            return ids, source
        return 2 * FIRST + len(ALPHABET) - 1 - ids[::-1], source[::-1].copy()


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """Each letter becomes the one ``variant`` places further on in the alphabet, which has no end."""

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        return FIRST + (ids - FIRST + variant) % len(ALPHABET), np.arange(len(ids))


@dataclasses.dataclass(frozen=True, slots=True)
class Drop:
    """Leaves out the last token."""

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        kept = len(ids) - variant
        return ids[:kept], np.arange(kept)


class Strands(Letters):
    """Letters of two strands."""

    name = "strands"

    def augmentations(self) -> Mapping[str, Augmentation]:
        return {
            "mirror": Augmentation(2, Mirror()),
            "shift": Augmentation(len(ALPHABET), Shift()),
            "drop": Augmentation(2, Drop()),
        }


def mirrored(text: str) -> str:
    """A text as the other strand has it."""
    return text[::-1].translate(str.maketrans(ALPHABET, ALPHABET[::-1]))
