"""Causal (left-to-right) language modelling: what BERT is compared with (Devlin et al. 2019, section 5.1)."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from seqbert.data.corpus import Corpus
from seqbert.data.packing import Target
from seqbert.objectives.sequences import Sequences


@dataclasses.dataclass
class CausalLMConfig:
    """Causal language modelling: each token is predicted from those before it. Needs ``model.causal: true``."""

    weight: float = 1.0
    """Weight of this term in the loss."""


class CausalLM:
    """Every token that is not special is predicted from those before it in its sequence."""

    name = "causal_lm"
    by_unit = False

    def __init__(self, config: CausalLMConfig, corpus: Corpus) -> None:
        self.config = config
        self._special = corpus.special_mask
        self._symbols = None if corpus.overlap else corpus.symbols

    def most_targets(self, tokens: int, sequences: int) -> int:
        """The most targets that so many tokens have."""
        return tokens

    def apply(self, sequences: Sequences, seed: int, hide_all: bool = False) -> tuple[np.ndarray, Target]:
        """The ids as they are, ``[tokens]``, and the next token as the target of each place."""
        following = np.append(sequences.ids[1:], 0)
        last = np.cumsum(sequences.lengths) - 1
        targets = ~self._special[following]
        targets[last] = False
        index = np.flatnonzero(targets)
        labels = following[index]
        symbols = None if self._symbols is None else torch.from_numpy(self._symbols[labels])
        return sequences.ids, Target(torch.from_numpy(index), torch.from_numpy(labels), symbols)
