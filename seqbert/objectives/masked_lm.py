"""Masked language modelling (Devlin et al. 2019, section 3.1, task 1 and appendix A.1)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from seqbert.data.corpus import Corpus
from seqbert.data.packing import Target
from seqbert.data.sampling import as_uniform, below, stream
from seqbert.errors import ConfigError
from seqbert.objectives.choosing import Draws, choose_tokens, choose_units
from seqbert.objectives.sequences import Sequences


@dataclasses.dataclass
class MaskedLMConfig:
    """Masked language modelling."""

    probability: float = 0.15
    """Share of the tokens that are to be predicted; at least one a sequence."""
    validation_probability: float = 0.15
    """The same share in validation, whatever it is in training, so that runs at several rates can be compared."""
    mask: float = 0.8
    """Share of those that are replaced by [MASK]."""
    random: float = 0.1
    """Share of those that are replaced by a random ordinary token; the rest stay as they are."""
    unit: str = "token"
    """What is masked as a whole: "token", "unit" (whatever the domain's unit is), or its name: word, codon, bar."""
    weight: float = 1.0
    """Weight of this term in the loss."""
    z_loss: float = 0.0
    """Weight, beside that, of the squared logarithm of the softmax's normaliser, which keeps logits from drifting
    (Chowdhery et al. 2022, PaLM, section 5, with 1e-4); reported apart, and no part of validation."""

    def __post_init__(self) -> None:
        if self.z_loss < 0:
            raise ConfigError(f"z_loss is {self.z_loss}, and it cannot be below 0.")
        for name in ("probability", "validation_probability"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, and it must be above 0 and at most 1.")
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

        With ``hide_all``, in validation, every target becomes [MASK]: a model is measured on what it cannot see, and
        one target in ten that is left in place would tell it the answer.
        """
        probability = self.config.validation_probability if hide_all else self.config.probability
        draws = Draws(sequences, seed)
        eligible = ~self._special[sequences.ids]
        if self.by_unit:
            chosen = choose_units(eligible, self._begins_unit(sequences, draws, eligible), draws, probability)
        else:
            chosen = choose_tokens(eligible, draws, probability)
        ids = sequences.ids.copy()
        if hide_all:
            ids[chosen] = self._mask_id
            if self._overlap:
                chosen = _lone_hidden(chosen, sequences, eligible, self._overlap)
        else:
            ids[chosen] = self._replace(sequences.ids[chosen], chosen, draws)
        labels = sequences.ids[chosen]
        return ids, Target(torch.from_numpy(chosen), torch.from_numpy(labels), self._hidden_symbols(labels))

    def most_targets(self, tokens: int, sequences: int) -> int:
        """The most targets that so many tokens in so many sequences can be expected to have in training.

        The number of each sequence is rounded, by at most half a target; whole units go beyond it at times, and of a
        sequence that is shorter than a unit everything may be hidden.
        """
        beyond = 0.05 * tokens + sequences if self.by_unit else 0.0
        return min(tokens, math.ceil(self.config.probability * tokens + sequences / 2 + beyond))

    def _replace(self, labels: np.ndarray, places: np.ndarray, draws: Draws) -> np.ndarray:
        draw = as_uniform(draws.bits("replacement", places))
        ids = np.where(draw < self.config.mask, self._mask_id, labels)
        random = np.flatnonzero((draw >= self.config.mask) & (draw < self.config.mask + self.config.random))
        number = as_uniform(draws.bits("random token", places[random])) * len(self._ordinary)
        ids[random] = self._ordinary[number.astype(np.int64)]
        return ids

    def _begins_unit(self, sequences: Sequences, draws: Draws, eligible: np.ndarray) -> np.ndarray:
        """Whether each token begins a unit.

        Overlapping k-mers give their neighbours away, so spans of k of them are masked (Ji et al. 2021,
        "DNABERT"); where the spans begin is drawn for each sequence, so that each base is hidden at times.
        """
        if self._overlap:
            width = self._overlap + 1
            places = sequences.stretches
            phase = below(width, draws.seed, stream("span phase"), places.step, places.place)
            assert sequences.segment_start is not None
            starts = ((draws.position + phase[draws.owner]) % width == 0) | sequences.segment_start
        else:
            assert sequences.unit_start is not None
            starts = sequences.unit_start.astype(bool)
        return np.asarray(starts | (draws.position == 0) | ~eligible)

    def _hidden_symbols(self, labels: np.ndarray) -> torch.Tensor | None:
        if self._overlap and not self.by_unit:
            return None  # single overlapping tokens hide nothing that their neighbours do not show
        return torch.from_numpy(self._symbols[labels])


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
