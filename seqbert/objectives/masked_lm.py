"""Masked language modelling (Devlin et al. 2019, section 3.1, task 1 and appendix A.1)."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from seqbert.data.corpus import Corpus
from seqbert.data.packing import Target
from seqbert.data.sampling import below, stream, uniform
from seqbert.errors import ConfigError
from seqbert.objectives.sequences import Sequences


@dataclasses.dataclass
class MaskedLMConfig:
    """Masked language modelling."""

    probability: float = 0.15
    """Share of the tokens that are to be predicted; at least one a sequence."""
    mask: float = 0.8
    """Share of those that are replaced by [MASK]."""
    random: float = 0.1
    """Share of those that are replaced by a random ordinary token; the rest stay as they are."""
    unit: str = "token"
    """What is masked as a whole: "token", "unit" (whatever the domain's unit is), or its name: word, codon, bar."""
    weight: float = 1.0
    """Weight of this term in the loss."""

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ConfigError(f"probability is {self.probability}, and it must be above 0 and at most 1.")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1:
            raise ConfigError(
                f"mask ({self.mask}) and random ({self.random}) are shares: neither below 0, together at most 1."
            )


def check_unit(config: MaskedLMConfig, domain: str, unit: str) -> None:
    """Makes sure that a domain whose masking unit is ``unit`` has what the config masks as a whole.

    Raises:
        ConfigError: if it has not.
    """
    if config.unit not in ("token", "unit", unit):
        has = "no masking unit but token" if unit == "token" else f"token and {unit}"
        raise ConfigError(f'objective.masked_lm.unit is "{config.unit}", and the domain "{domain}" has {has}.')


class MaskedLM:
    """Hides tokens, and says what stood there."""

    name = "masked_lm"

    def __init__(self, config: MaskedLMConfig, corpus: Corpus) -> None:
        self.config = config
        check_unit(config, corpus.domain, corpus.unit)
        self.by_unit = config.unit != "token"
        self._special = corpus.special_mask
        self._ordinary = corpus.ordinary_ids
        self._mask_id = corpus.special_ids["[MASK]"]
        self._symbols = corpus.symbols
        self._overlap = corpus.overlap

    def apply(self, sequences: Sequences, seed: int, hide_all: bool = False) -> tuple[np.ndarray, Target]:
        """Ids with tokens hidden, ``[tokens]``, and the targets in the order of the stream.

        With ``hide_all`` every target becomes [MASK]: a model is measured on what it cannot see, and one target in
        ten that is left in place would tell it the answer.
        """
        lengths = sequences.lengths
        number = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        key = (
            np.repeat(sequences.stretches.step, lengths),
            np.repeat(sequences.stretches.place, lengths),
            position,
        )
        eligible = ~self._special[sequences.ids]
        if self.by_unit:
            unit = self._units(sequences, number, position, seed)
            chosen = _choose_units(eligible, number, unit, key, self.config.probability, seed)
        else:
            chosen = _choose_tokens(eligible, number, key, self.config.probability, seed)
        ids = sequences.ids.copy()
        if hide_all:
            ids[chosen] = self._mask_id
            if self._overlap:
                chosen = _lone_hidden(chosen, sequences, eligible, self._overlap)
        else:
            ids[chosen] = self._replace(sequences.ids[chosen], tuple(part[chosen] for part in key), seed)
        labels = sequences.ids[chosen]
        return ids, Target(torch.from_numpy(chosen), torch.from_numpy(labels), self._hidden_symbols(labels))

    def _replace(self, labels: np.ndarray, key: tuple[np.ndarray, ...], seed: int) -> np.ndarray:
        draw = uniform(seed, stream("replacement"), *key)
        random = self._ordinary[below(len(self._ordinary), seed, stream("random token"), *key)]
        masked = draw < self.config.mask
        randomised = ~masked & (draw < self.config.mask + self.config.random)
        return np.where(masked, self._mask_id, np.where(randomised, random, labels))

    def _units(self, sequences: Sequences, number: np.ndarray, position: np.ndarray, seed: int) -> np.ndarray:
        """A number for each token's unit that rises along the stream.

        Overlapping k-mers give their neighbours away, so spans of k of them are masked (Ji et al. 2021,
        "DNABERT"); where the spans begin is drawn for each sequence, so that each base is hidden at times.
        """
        if self._overlap:
            width = self._overlap + 1
            places = sequences.stretches
            phase = below(width, seed, stream("span phase"), places.step, places.place)
            assert sequences.segment_start is not None
            starts = ((position + phase[number]) % width == 0) | sequences.segment_start
        else:
            assert sequences.unit_start is not None
            starts = sequences.unit_start.astype(bool)
        return np.cumsum(starts | (position == 0) | self._special[sequences.ids])

    def _hidden_symbols(self, labels: np.ndarray) -> torch.Tensor | None:
        if self._overlap and not self.by_unit:
            return None  # single overlapping tokens hide nothing that their neighbours do not show
        return torch.from_numpy(self._symbols[labels])


def _choose_tokens(
    eligible: np.ndarray, number: np.ndarray, key: tuple[np.ndarray, ...], probability: float, seed: int
) -> np.ndarray:
    """Places of the chosen tokens: of each sequence as many as the rate says, drawn without replacement."""
    places = np.flatnonzero(eligible)
    owner = number[places]
    counts = np.bincount(owner, minlength=int(number[-1]) + 1)
    wanted = _wanted(counts, probability)
    order = np.argsort(owner + uniform(seed, stream("masked"), *(part[places] for part in key)), kind="stable")
    rank = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(places[order[rank < wanted[owner]]])


def _choose_units(
    eligible: np.ndarray,
    number: np.ndarray,
    unit: np.ndarray,
    key: tuple[np.ndarray, ...],
    probability: float,
    seed: int,
) -> np.ndarray:
    """Places of the tokens of the chosen units: whole units, in random order, as many tokens as the rate says.

    The unit that would go beyond the rate is taken as often as the room left for it is a share of it, so that the
    rate holds on average; but the first one is taken whatever its size, so that every sequence has a target.
    """
    places = np.flatnonzero(eligible)
    if not len(places):
        return places
    _, first, inverse, sizes = np.unique(unit[places], return_index=True, return_inverse=True, return_counts=True)
    owner = number[places[first]]
    unit_key = tuple(part[places[first]] for part in key)
    order = np.argsort(owner + uniform(seed, stream("masked"), *unit_key), kind="stable")
    owner, sizes = owner[order], sizes[order]
    begins = np.append(True, owner[1:] != owner[:-1])
    sums = np.cumsum(sizes) - sizes
    before = sums - sums[begins][np.cumsum(begins) - 1]
    room = _wanted(np.bincount(number[places], minlength=int(number[-1]) + 1), probability)[owner] - before
    lucky = uniform(seed, stream("last unit"), *unit_key)[order] * sizes < room
    taken = np.zeros(len(sizes), bool)
    taken[order] = begins | (sizes <= room) | lucky
    return places[taken[inverse]]


def _wanted(counts: np.ndarray, probability: float) -> np.ndarray:
    return np.where(counts > 0, np.maximum(1, np.floor(counts * probability + 0.5)), 0).astype(np.int64)


def _lone_hidden(chosen: np.ndarray, sequences: Sequences, ordinary: np.ndarray, overlap: int) -> np.ndarray:
    """Of hidden overlapping tokens those with exactly one symbol that no visible token shows: its first.

    Token ``t`` covers the symbols ``t`` to ``t + overlap``. If token ``t + 1`` is visible, all of them but the first
    are known; and the first is hidden if all tokens that reach it are. So each such token is a prediction of one
    symbol, and no symbol is counted twice.
    """
    assert sequences.segment_start is not None
    if not len(chosen):
        return chosen
    masked = np.zeros(len(sequences.ids) + 1, bool)
    masked[chosen] = True
    ends = ~masked[chosen + 1] & np.append(ordinary, False)[chosen + 1]
    ends &= ~np.append(sequences.segment_start, True)[chosen + 1]
    begins = np.append(True, np.diff(chosen) != 1) | sequences.segment_start[chosen]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(chosen)), 0))
    reached = np.arange(len(chosen)) - first >= overlap
    lone: np.ndarray = chosen[ends & (reached | sequences.segment_start[chosen[first]])]
    return lone
