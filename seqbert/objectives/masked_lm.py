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


class MaskedLM:
    """Hides tokens, and says what stood there."""

    name = "masked_lm"

    def __init__(self, config: MaskedLMConfig, corpus: Corpus) -> None:
        self.config = config
        self.by_unit = config.unit != "token"
        if config.unit not in ("token", "unit", corpus.unit):
            raise ConfigError(
                f'objective.masked_lm.unit is "{config.unit}", and the domain "{corpus.domain}" has '
                f"{'no masking unit but token' if corpus.unit == 'token' else f'token and {corpus.unit}'}."
            )
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
        labels = sequences.ids[chosen]
        symbols = self._hidden_symbols(chosen, labels, number, position, lengths)
        ids = sequences.ids.copy()
        if hide_all:
            ids[chosen] = self._mask_id
        else:
            ids[chosen] = self._replace(labels, tuple(part[chosen] for part in key), seed)
        return ids, Target(torch.from_numpy(chosen), torch.from_numpy(labels), symbols)

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
            starts = (position + phase[number]) % width == 0
        else:
            assert sequences.unit_start is not None
            starts = sequences.unit_start.astype(bool)
        return np.cumsum(starts | (position == 0) | self._special[sequences.ids])

    def _hidden_symbols(
        self,
        chosen: np.ndarray,
        labels: np.ndarray,
        number: np.ndarray,
        position: np.ndarray,
        lengths: np.ndarray,
    ) -> torch.Tensor | None:
        if not self._overlap:
            return torch.from_numpy(self._symbols[labels])
        if not self.by_unit:
            return None  # single overlapping tokens hide nothing that their neighbours do not show
        return torch.from_numpy(_bases_hidden(chosen, number[chosen], position, lengths, self._overlap))


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
    rate holds on average; the first one is taken whatever its size, so that every sequence has a target.
    """
    places = np.flatnonzero(eligible)
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


def _bases_hidden(
    chosen: np.ndarray, number: np.ndarray, position: np.ndarray, lengths: np.ndarray, overlap: int
) -> np.ndarray:
    """Symbols that each chosen overlapping token hides, each hidden symbol counted once.

    Token ``i`` covers the symbols ``i`` to ``i + overlap``. In a run of chosen tokens ``i`` to ``j - 1`` the
    tokens on either side show all but the symbols ``i + overlap`` to ``j - 1``, and nothing is shown beyond the
    sequence's ends. The count stands at the run's first token.
    """
    breaks = np.ones(len(chosen) + 1, bool)
    breaks[1:-1] = (np.diff(chosen) != 1) | (np.diff(number) != 0)
    edges = np.flatnonzero(breaks)
    firsts, lasts = edges[:-1], edges[1:] - 1
    start, stop = position[chosen[firsts]] - 1, position[chosen[lasts]]  # less the place of [CLS]
    tokens = lengths[number[firsts]] - 2
    left = np.where(start == 0, 0, start + overlap)
    right = np.where(stop == tokens, tokens + overlap, stop)
    hidden = np.zeros(len(chosen), np.float32)
    hidden[firsts] = np.maximum(0, right - left)
    return hidden
