"""An objective is a token term (masked or causal LM), a pair term, or both, over one vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.corpus import Corpus
from seqbert.data.packing import WHOLE, PackedBatch, Share, Target
from seqbert.data.plan import Source, Stretches
from seqbert.data.stages import Stages
from seqbert.data.static import Shape
from seqbert.errors import ConfigError
from seqbert.models.heads import MaskedLMHead
from seqbert.models.losses import Term, cross_entropy, weighted_sum, z_loss
from seqbert.objectives.causal_lm import CausalLM, CausalLMConfig
from seqbert.objectives.masked_lm import MaskedLM, MaskedLMConfig
from seqbert.objectives.next_sentence import NextSentence
from seqbert.objectives.pairs import SPECIALS_IN_PAIR, PairDrawer
from seqbert.objectives.sentence_order import SentenceOrder
from seqbert.objectives.sequences import NO_PAIR, Drawn, build_sequences, draw_single

PAIR_OBJECTIVES: dict[str, type[NextSentence] | type[SentenceOrder]] = {
    "next_sentence": NextSentence,
    "sentence_order": SentenceOrder,
}

Z_LOSS = "z_loss"
"""Name of the term that keeps the token term's logits from drifting; it is there in training alone."""

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

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each term in the loss."""
        weight = self.token_term.config.weight
        weights = {self.token_term.name: weight}
        if self.pair is not None:
            weights[self.config.pair] = self.config.pair_weight
        return weights | {Z_LOSS: weight * self._z_loss} if self._z_loss else weights

    @property
    def measured(self) -> list[str]:
        """The terms that have targets of their own: what validation measures."""
        return [name for name in self.weights if name != Z_LOSS]

    @property
    def _z_loss(self) -> float:
        return 0.0 if self.config.masked_lm is None else self.config.masked_lm.z_loss

    def window_size(self, max_length: int) -> int:
        """Most tokens of a window, so that it fits a sequence with its special tokens."""
        return max_length - (2 if self.pair is None else SPECIALS_IN_PAIR)

    def calibrate(self, source: Source) -> None:
        """Sets how many sequences fill a step of each stage of the source, from the lengths of a sample of them.

        Raises:
            TrainingError: if the pair objective cannot draw pairs from the source.
        """
        if self.pair is not None:
            self.pair.check(source)
        sample = source.plan.sequential(CALIBRATION)
        source.stages = Stages(
            [
                stage.sized(self._draw(source, source.cropped(sample, stage), stage.max_length).lengths)
                for stage in source.stages.all
            ]
        )

    def examples(self, source: Source, step: int, share: Share = WHOLE) -> PackedBatch:
        """A process' share of a step's global batch: as many sequences as fill the token budget, in order of length.

        The places of all sequences are drawn, and the tokens of the share are read. What a sequence holds and hides
        does not depend on who builds it.
        """
        stage = source.stages[step]
        drawn = self._draw(source, source.step(step), stage.max_length)
        fitting = stage.fitting(drawn.lengths)
        order = fitting[np.argsort(drawn.lengths[fitting], kind="stable")]
        own = share.of(order)
        batch = self._batch(source, drawn.chosen(own if len(own) else order[:1]))
        batch.counted = len(own) > 0
        return batch

    def shape(self, source: Source, step: int, micro_tokens: int, ranks: int = 1) -> Shape:
        """The static shape of a step's micro-batches on each of so many processes.

        Steps of one stage have the same, and nothing but the source decides on it.
        """
        stage = source.stages[step]
        sequences = stage.sequences + stage.extra
        return Shape.of(stage.tokens, sequences, stage.max_length, micro_tokens, ranks, self._most_targets)

    def _most_targets(self, tokens: int, sequences: int) -> dict[str, int]:
        """Of each term the most targets that so many tokens in so many sequences can be expected to have."""
        most = {self.token_term.name: self.token_term.most_targets(tokens, sequences)}
        return most if self.pair is None else most | {self.config.pair: sequences}

    def validation(self, source: Source, most_tokens: int) -> Iterator[PackedBatch]:
        """Batches over at most about ``most_tokens`` of the source, spread evenly; the same ones every time.

        Every masked target is hidden by [MASK] here, so that bits are counted over what the model does not see.
        """
        windows = max(1, most_tokens // source.max_length)
        stretches = source.plan.sequential(windows)
        batch = max(1, source.tokens_per_step // source.max_length)
        for low in range(0, len(stretches), batch):
            drawn = self._draw(source, stretches[low : low + batch], source.max_length)
            order = np.argsort(drawn.lengths, kind="stable")
            yield self._batch(source, drawn.chosen(order), hide_all=True)

    def rows(self, batch: PackedBatch) -> Tensor:
        """The targets' tokens, then the first tokens of the sequences whose pair is asked about."""
        index = batch.targets[self.token_term.name].index
        if self.pair is None:
            return index
        return torch.cat((index, batch.cu_seqlens[:-1].long()[batch.targets[self.config.pair].index]))

    def forward(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> dict[str, Term]:
        """Loss terms of a batch.

        Args:
            hidden: The encoder's output for :meth:`rows`, ``[rows, hidden_size]``.
            batch: The batch that it is of.
            heads: The heads of the batch's vocabulary.
        """
        target = batch.targets[self.token_term.name]
        of_targets, first_tokens = hidden.tensor_split([len(target.index)])
        head = cast(MaskedLMHead, heads["masked_lm"])
        terms = {}
        if torch.is_grad_enabled():
            losses, normalisers = head.losses(of_targets, target.labels)
            terms[self.token_term.name] = Term(weighted_sum(losses, target.weight), len(losses), None)
            if self._z_loss:
                terms[Z_LOSS] = z_loss(normalisers, self.token_term.name, target.weight)
        else:
            terms[self.token_term.name] = cross_entropy(head(of_targets), target.labels)
        if self.pair is not None:
            pairs = batch.targets[self.config.pair]
            terms[self.config.pair] = cross_entropy(heads["pair"](first_tokens), pairs.labels, pairs.weight)
        return terms

    def _draw(self, source: Source, stretches: Stretches, max_length: int) -> Drawn:
        if self.pair is None:
            return draw_single(source, stretches, max_length)
        return PairDrawer(source, max_length).draw(stretches, self.pair)

    def _batch(self, source: Source, drawn: Drawn, hide_all: bool = False) -> PackedBatch:
        sequences = build_sequences(source, drawn, self.token_term.by_unit)
        ids, target = self.token_term.apply(sequences, source.seed, hide_all)
        targets = {self.token_term.name: target}
        if self.pair is not None:
            index = np.flatnonzero(sequences.pair_label != NO_PAIR)
            targets[self.config.pair] = Target(
                torch.from_numpy(index), torch.from_numpy(sequences.pair_label[index]), of_sequences=True
            )
        record = source.split.row[sequences.stretches.document]
        return PackedBatch.of(
            source.vocabulary, ids, sequences.segment_ids, sequences.lengths, record, targets, sequences.position
        )
