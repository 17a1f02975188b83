"""What attention heads look at (Clark et al. 2019, *What Does BERT Look At?*, section 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class HeadFigures:
    """What the heads of one block do in the mean over all queries, ``[heads]`` each.

    Attributes:
        entropy: Of the weights of a query, in nats: 0 for one that looks at a single token.
        distance: Tokens between a query and what it looks at.
        previous: Share of the weights on the token before.
        following: Share on the token after.
        itself: Share on the token itself.
        marked: Share on the tokens that the caller marked, such as [CLS] and [SEP].
    """

    entropy: np.ndarray
    distance: np.ndarray
    previous: np.ndarray
    following: np.ndarray
    itself: np.ndarray
    marked: np.ndarray


def head_figures(weights: Sequence[np.ndarray], marked: Sequence[np.ndarray]) -> HeadFigures:
    """Figures of the heads of a block over some sequences; each query counts alike.

    Args:
        weights: For each sequence ``[heads, length, length]``, query by key, rows summing to 1.
        marked: For each sequence which tokens are marked, ``[length]`` bool.

    Raises:
        ValueError: There is no sequence, or masks and weights are not of the same ones.
    """
    if not weights or len(weights) != len(marked):
        raise ValueError(f"{len(weights)} sequences of weights and {len(marked)} of marks")
    sums, queries = np.zeros((6, weights[0].shape[0])), 0
    for own, marks in zip(weights, marked, strict=True):
        length = own.shape[1]
        place = np.arange(length)
        apart = np.abs(place[:, None] - place[None, :])
        logs = np.log(own, where=own > 0, out=np.zeros_like(own))
        sums += np.stack(
            [
                -(own * logs).sum(axis=(1, 2)),
                (own * apart).sum(axis=(1, 2)),
                np.trace(own, offset=-1, axis1=1, axis2=2),
                np.trace(own, offset=1, axis1=1, axis2=2),
                np.trace(own, axis1=1, axis2=2),
                own[:, :, np.asarray(marks, bool)].sum(axis=(1, 2)),
            ]
        )
        queries += length
    return HeadFigures(*(sums / max(queries, 1)))
