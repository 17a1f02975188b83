"""Variants of labelled sequences: which augmentations a config means, all of them as one, and where tokens went."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from seqbert.domain import Augmentation, Domain
from seqbert.errors import ConfigError, DomainError, nearest


def chosen_augmentations(domain: Domain, names: Sequence[str], key: str) -> dict[str, Augmentation]:
    """The augmentations of these names, of a domain whose tokenizer is in use.

    Args:
        domain: The domain.
        names: What a config or the command line names.
        key: Where it names them, for the message: ``domain.augment``, ``--average``.

    Raises:
        ConfigError: The domain has none of that name, or one is named twice.
    """
    known = domain.augmentations() if names else {}
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f'{key} names "{name}", and the domain "{domain.name}" has no such augmentation: {has}.'
                f"{nearest(name, known)}"
            )
        if list(names).count(name) > 1:
            raise ConfigError(f'{key} names "{name}" twice.')
    return {name: known[name] for name in names}


def in_turn(augmentations: Mapping[str, Augmentation]) -> Augmentation | None:
    """One augmentation whose variants are all combinations of those of several; None where there are none."""
    parts = tuple(augmentations.values())
    if len(parts) < 2:
        return parts[0] if parts else None
    return Augmentation(math.prod(part.variants for part in parts), _InTurn(parts))


@dataclasses.dataclass(frozen=True, slots=True)
class _InTurn:
    """Applies a variant of each of several augmentations, the first one's first."""

    parts: tuple[Augmentation, ...]

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        source = np.arange(len(ids))
        for part in self.parts:
            variant, own = divmod(variant, part.variants)
            if own:
                ids, moved = part.change(ids, None if units is None else units[source], own)
                source = source[moved]
        return ids, source


def places_after(source: np.ndarray) -> np.ndarray:
    """Where each token went, ``[tokens]``, given where each that is there now came from, ``[tokens]``.

    Raises:
        DomainError: A token is gone or there twice, so that its label or output has no place.

    >>> places_after(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    places = np.argsort(source)
    if not np.array_equal(source[places], np.arange(len(source))):
        raise DomainError(
            "An augmentation that takes tokens out or repeats them cannot be used where tokens have labels or outputs "
            "of their own (tagging, span)."
        )
    return np.asarray(places)


def is_reversed(source: np.ndarray) -> bool:
    """Whether the tokens now stand the other way round: what began a stretch ends it."""
    return len(source) > 1 and bool(source[0] > source[-1])
