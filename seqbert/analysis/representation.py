"""How alike representations are: of one token in many contexts, of two encoders, of sentences in two languages."""

from __future__ import annotations

import dataclasses

import numpy as np


def cosines(first: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
    """Cosine of the angle between each vector of one set and each of another.

    Args:
        first: ``[n, width]``.
        second: ``[m, width]``; None: the same as ``first``.

    Returns:
        ``[n, m]``, between -1 and 1; 0 where a vector is 0.

    >>> cosines(np.array([[1.0, 0.0], [2.0, 2.0]])).round(3).tolist()
    [[1.0, 0.707], [0.707, 1.0]]
    """
    one = _normed(first)
    return np.asarray(np.clip(one @ (one if second is None else _normed(second)).T, -1.0, 1.0))


def self_similarity(vectors: np.ndarray) -> float:
    """Mean cosine of one token's vectors in different contexts (Ethayarajh 2019, section 3.2, definition 1).

    1: the token has one vector whatever stands around it.

    Args:
        vectors: Its vector in each context, ``[contexts, width]``, two at least.

    Raises:
        ValueError: There are fewer than two.
    """
    count = len(vectors)
    if count < 2:
        raise ValueError("a token's self-similarity needs two contexts at least")
    return float((cosines(vectors).sum() - count) / (count * (count - 1)))


def anisotropy(vectors: np.ndarray) -> float:
    """Mean cosine of vectors of different tokens, drawn at random: the floor that a similarity is to be seen against.

    What lies above it is the similarity adjusted for anisotropy (Ethayarajh 2019, section 3.3).

    Args:
        vectors: Of tokens that have nothing in common, ``[n, width]``.
    """
    return self_similarity(vectors)


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """Linear centred kernel alignment of two representations of the same things (Kornblith et al. 2019, section 3).

    1 where one is the other turned and scaled as a whole; 0 where they have nothing in common. The widths may differ.

    Args:
        first: ``[n, width]``.
        second: ``[n, another width]``, of the same ``n`` things in the same order.

    Raises:
        ValueError: They are not of equally many things.

    >>> points = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 5.0]])
    >>> round(linear_cka(points, 3 * points[:, ::-1] + 1), 6)
    1.0
    """
    if len(first) != len(second):
        raise ValueError(f"the representations are of {len(first)} and of {len(second)} things")
    one, other = (np.asarray(side, np.float64) - np.mean(side, axis=0) for side in (first, second))
    shared = np.square(one.T @ other).sum()
    own = np.sqrt(np.square(one.T @ one).sum() * np.square(other.T @ other).sum())
    return float(shared / own) if own > 0 else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Retrieval:
    """How often the nearest vector of the other side is the right one.

    Attributes:
        forth: From the first side to the second.
        back: From the second to the first.
    """

    forth: float
    back: float

    @property
    def mean(self) -> float:
        """Of both ways."""
        return (self.forth + self.back) / 2


def retrieval(first: np.ndarray, second: np.ndarray, centred: bool = False) -> Retrieval:
    """Whether vectors of aligned sentences find each other, by cosine (Pires et al. 2019, section 5).

    Args:
        first: ``[sentences, width]``, of one language.
        second: Of the same sentences in another language, in the same order.
        centred: Take each language's mean vector out before (Libovický et al. 2020, section 2.1).

    Raises:
        ValueError: They are not of equally many sentences.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} sentences cannot be aligned with {len(second)}")
    if centred:
        first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    found, right = cosines(first, second), np.arange(len(first))
    return Retrieval(float((found.argmax(axis=1) == right).mean()), float((found.argmax(axis=0) == right).mean()))


def _normed(vectors: np.ndarray) -> np.ndarray:
    rows = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))
