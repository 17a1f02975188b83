"""An objective is a token term (masked or causal LM), a pair term, or both, over one vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.corpus import Corpus
from seqbert.data.packing import WHOLE, PackedBatch, Share, Target
from seqbert.data.plan import Source, Stretches
from seqbert.errors import ConfigError
from seqbert.models.losses import Term, cross_entropy
from seqbert.objectives.causal_lm import CausalLM, CausalLMConfig
from seqbert.objectives.masked_lm import MaskedLM, MaskedLMConfig
from seqbert.objectives.next_sentence import NextSentence
from seqbert.objectives.pairs import SPECIALS_IN_PAIR, PairDrawer
from seqbert.objectives.sentence_order import SentenceOrder
from seqbert.objectives.sequences import NO_PAIR, Drawn, Sequences, build_sequences, draw_single

PAIR_OBJECTIVES: dict[str, type[NextSentence] | type[SentenceOrder]] = {
    "next_sentence": NextSentence,
    "sentence_order": SentenceOrder,
}

CALIBRATION = 1024
"""Sequences whose lengths set how many fill a step."""


@dataclasses.dataclass
class ObjectiveConfig:
    """What the model learns from."""

    masked_lm: MaskedLMConfig | None = dataclasses.field(default_factory=MaskedLMConfig)
    """Masked language modelling, or null."""
    causal_lm: CausalLMConfig | None = None
    """Causal language modelling, or null."""
    pair: Literal["next_sentence", "sentence_order", "none"] = "none"
    """What is asked of pairs of segments."""
    pair_weight: float = 1.0
    """Weight of the pair term in the loss."""

    def __post_init__(self) -> None:
        if (self.masked_lm is None) == (self.causal_lm is None):
            raise ConfigError("masked_lm and causal_lm: one of them is to be given, and the other null.")

    @property
    def heads(self) -> set[str]:
        """Names of the heads it needs."""
        return {"masked_lm"} if self.pair == "none" else {"masked_lm", "pair"}


class Objective:
    """Makes batches in numpy, in the loader's workers, and turns hidden states into loss terms.

    It holds no data: everything that :meth:`examples` draws is a function of the source, its seed and the step.
    """

    def __init__(self, config: ObjectiveConfig, corpus: Corpus) -> None:
        self.config = config
        self.token_term: MaskedLM | CausalLM
        if config.masked_lm is not None:
            self.token_term = MaskedLM(config.masked_lm, corpus)
        else:
            assert config.causal_lm is not None
            self.token_term = CausalLM(config.causal_lm, corpus)
        self.pair: NextSentence | SentenceOrder | None = (
            None if config.pair == "none" else PAIR_OBJECTIVES[config.pair]()
        )

        self._drawer: PairDrawer | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_drawer": None}

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each term in the loss."""
        weights = {self.token_term.name: self.token_term.config.weight}
        return weights if self.pair is None else weights | {self.config.pair: self.config.pair_weight}

    def window_size(self, max_length: int) -> int:
        """Most tokens of a window, so that it fits a sequence with its special tokens."""
        return max_length - (2 if self.pair is None else SPECIALS_IN_PAIR)

    def calibrate(self, source: Source) -> None:
        """Sets how many sequences fill a step of the source, from the lengths of a sample of them.

        Raises:
            TrainingError: if the pair objective cannot draw pairs from the source.
        """
        if self.pair is not None:
            self.pair.check(source)
        source.set_step_size(self._draw(source, source.plan.sequential(CALIBRATION)).lengths)

    def examples(self, source: Source, step: int, share: Share = WHOLE) -> PackedBatch:
        """A process' share of a step's global batch: as many sequences as fill the token budget, in order of length.

        The places of all sequences are drawn, and the tokens of the share are read. What a sequence holds and hides
        does not depend on who builds it.
        """
        drawn = self._draw(source, source.plan.step(step, source.extra))
        lengths = drawn.lengths
        fitting = max(1, int(np.searchsorted(np.cumsum(lengths), source.tokens_per_step, side="right")))
        order = np.argsort(lengths[:fitting], kind="stable")
        own = share.of(order)
        batch = self._batch(source, build_sequences(source, drawn, own if len(own) else order[:1]))
        batch.counted = len(own) > 0
        return batch

    def validation(self, source: Source, most_tokens: int) -> Iterator[PackedBatch]:
        """Batches over at most about ``most_tokens`` of the source, spread evenly; the same ones every time.

        Every masked target is hidden by [MASK] here, so that bits are counted over what the model does not see.
        """
        windows = max(1, most_tokens // source.max_length)
        stretches = source.plan.sequential(windows)
        batch = max(1, source.tokens_per_step // source.max_length)
        for low in range(0, len(stretches), batch):
            drawn = self._draw(source, stretches[low : low + batch])
            order = np.argsort(drawn.lengths, kind="stable")
            yield self._batch(source, build_sequences(source, drawn, order), hide_all=True)

    def rows(self, batch: PackedBatch) -> None:
        """All tokens: targets stand anywhere."""

    def forward(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> dict[str, Term]:
        """Loss terms of a batch.

        Args:
            hidden: The encoder's output, ``[tokens, hidden_size]``.
            batch: The batch that it is of.
            heads: The heads of the batch's vocabulary.
        """
        target = batch.targets[self.token_term.name]
        logits = heads["masked_lm"](hidden[target.index])
        terms = {self.token_term.name: cross_entropy(logits, target.labels)}
        if self.pair is not None:
            pairs = batch.targets[self.config.pair]
            first_tokens = hidden[batch.cu_seqlens[:-1].long()[pairs.index]]
            terms[self.config.pair] = cross_entropy(heads["pair"](first_tokens), pairs.labels)
        return terms

    def _draw(self, source: Source, stretches: Stretches) -> Drawn:
        if self.pair is None:
            return draw_single(source, stretches)
        if self._drawer is None or self._drawer.source is not source:
            self._drawer = PairDrawer(source)
        return self._drawer.draw(stretches, self.pair)

    def _batch(self, source: Source, sequences: Sequences, hide_all: bool = False) -> PackedBatch:
        ids, target = self.token_term.apply(sequences, source.seed, hide_all)
        targets = {self.token_term.name: target}
        if self.pair is not None:
            index = np.flatnonzero(sequences.pair_label != NO_PAIR)
            targets[self.config.pair] = Target(
                torch.from_numpy(index), torch.from_numpy(sequences.pair_label[index]), of_sequences=True
            )
        record = source.split.row[sequences.stretches.document]
        return PackedBatch.of(source.vocabulary, ids, sequences.segment_ids, sequences.lengths, record, targets)
