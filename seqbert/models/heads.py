"""What stands on the encoder: small modules that turn hidden states into logits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqbert.errors import ConfigError, nearest
from seqbert.models.config import EncoderConfig
from seqbert.models.dropout import Dropout
from seqbert.models.embeddings import layer_norm
from seqbert.models.encoder import ACTIVATIONS
from seqbert.models.losses import LinearCrossEntropy, in_full_precision

HEADS = ("masked_lm", "pair", "classification", "tagging", "span", "choice")
"""Kinds of heads: masked (with a causal encoder, left-to-right) LM, two classes for a pair, classes or a number for a
sequence, classes for a token, start and end of a span, and a score for a choice."""

FIXED_OUTPUTS = {"pair": 2, "span": 2, "choice": 1}
"""Number of outputs of the kinds that leave no choice; the masked LM's is the vocabulary's size."""

POOLED = ("pair", "classification", "choice")
"""Kinds that stand on the first token of a sequence."""

TASKS = ("classification", "tagging", "span", "choice")
"""Kinds that are made for a task."""

CARRIED_OVER = ("pooler", "dense", "norm")
"""Modules of heads that do not depend on what is asked: a task's head begins with those that pretraining learned."""


def check_heads(kinds: Iterable[str]) -> None:
    """Makes sure that kinds of heads are known.

    Raises:
        ConfigError: One is not.
    """
    for kind in kinds:
        if kind not in HEADS:
            known = f"{', '.join(HEADS[:-1])} and {HEADS[-1]}"
            raise ConfigError(f'there is no head "{kind}"; there are {known}.' + nearest(kind, HEADS))


def head_outputs(kinds: Collection[str] | Mapping[str, int], vocab_size: int) -> dict[str, int]:
    """Number of outputs of each kind of head, in a fixed order.

    Args:
        kinds: The kinds, or each with its number of outputs.
        vocab_size: The masked LM's number of outputs.

    Raises:
        ConfigError: A kind is unknown, lacks its number of outputs, or has one that it cannot have.

    >>> head_outputs({"tagging": 17, "pair": 2}, vocab_size=30522), head_outputs(["masked_lm"], vocab_size=30522)
    ({'pair': 2, 'tagging': 17}, {'masked_lm': 30522})
    """
    check_heads(kinds)
    fixed = {"masked_lm": vocab_size} | FIXED_OUTPUTS
    asked = dict(kinds) if isinstance(kinds, Mapping) else {kind: fixed.get(kind) for kind in kinds}
    outputs: dict[str, int] = {}
    for kind in sorted(asked):
        number = asked[kind]
        if number is None:
            raise ConfigError(f'the head "{kind}" needs a number of outputs')
        if number != fixed.get(kind, max(1, number)):
            raise ConfigError(f'the head "{kind}" has {fixed.get(kind, "at least 1")} outputs, and not {number}')
        outputs[kind] = number
    return outputs


def build_head(kind: str, config: EncoderConfig, width: int, outputs: int, word: nn.Embedding) -> nn.Module:
    """A head of a known kind.

    What a task puts on BERT is a :class:`PooledHead` or a :class:`TokenHead`, and on ModernBERT a :class:`DenseHead`,
    as ``task_head`` says; the masked LM and the pair have the same on both.

    Args:
        kind: One of :data:`HEADS`.
        config: The encoder's shape.
        width: Of the rows that it takes: the hidden states' or the features'.
        outputs: Number of its logits.
        word: The word embeddings, which the masked LM decodes with.
    """
    if kind == "masked_lm":
        return MaskedLMHead(config, word)
    if kind in TASKS and config.task_head == "modern":
        return DenseHead(config, width, outputs)
    dropout = config.dropout if kind in ("classification", "tagging", "choice") else 0.0
    return (PooledHead if kind in POOLED else TokenHead)(width, outputs, dropout)


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary: dense layer, activation, LayerNorm, a decoder tied to the word embeddings.

    It is the head of BERT's masked LM (Devlin et al. 2019, section 3.1, task 1, and their released code), and
    with a causal encoder that of a left-to-right LM.

    Args:
        config: The encoder's shape.
        word: The word embeddings whose weight is the decoder's. They stay the encoder's: the head does not
            register them again, so that the weight is counted, saved and updated once.
    """

    def __init__(self, config: EncoderConfig, word: nn.Embedding) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, config.bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = layer_norm(config)
        self.bias = nn.Parameter(torch.zeros(word.num_embeddings))
        self._tied = (word,)  # in a tuple, where nn.Module does not register it a second time

    @property
    def outputs(self) -> int:
        """Number of logits: the vocabulary's size."""
        return len(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[targets, hidden_size]`` to ``[targets, vocab_size]``; call it on the targets' rows only."""
        (word,) = self._tied
        return F.linear(self._transformed(hidden), word.weight, self.bias)

    def losses(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy of each target, and the logarithm of its softmax's normaliser, ``[targets]`` each.

        It is what :meth:`forward` and a softmax give, and what training takes: of the logits a step keeps one copy.
        """
        (word,) = self._tied
        if torch.compiler.is_compiling():  # which makes as few passes over the logits by itself
            logits = in_full_precision(self(hidden))
            normalisers = logits.logsumexp(-1)
            return normalisers - logits.gather(1, labels[:, None]).squeeze(1), normalisers
        transformed = _for_products(self._transformed(hidden))
        given = LinearCrossEntropy.apply(transformed, word.weight, self.bias, labels)  # type: ignore[no-untyped-call]
        return cast("tuple[Tensor, Tensor]", given)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))  # type: ignore[no-any-return]


def _for_products(hidden: Tensor) -> Tensor:
    """Hidden states as autocast casts them for products, where it is on: on some devices LayerNorm gives float32."""
    kind = hidden.device.type
    return hidden.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden


class PooledHead(nn.Module):
    """Logits of a sequence: pooler, dropout and a linear layer over its first token.

    Devlin et al. 2019, section 3.1, task 2 and section 4.1: the pooler is a dense layer with tanh over [CLS]. With two
    outputs and no dropout it is next-sentence prediction, where in published checkpoints class 0 says that the second
    part follows the first; with one output it is a regression, or the score of a choice (section 4.4).

    Args:
        width: Of the rows it takes.
        outputs: Number of logits.
        dropout: On what the pooler gives.
    """

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(width, outputs)

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.classifier.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """First tokens of the sequences, ``[sequences, width]``, to ``[sequences, outputs]``."""
        return self.classifier(self.dropout(torch.tanh(self.pooler(hidden))))  # type: ignore[no-any-return]


class TokenHead(nn.Module):
    """Logits of each token by itself: dropout and a linear layer.

    With a logit a class it tags tokens (Devlin et al. 2019, section 5.3); with two logits, for start and end, it finds
    spans (section 4.2).

    Args:
        width: Of the rows it takes.
        outputs: Number of logits.
        dropout: On the rows.
    """

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(width, outputs)

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.classifier.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """``[targets, width]`` to ``[targets, outputs]``; call it on the rows that are asked about only."""
        return self.classifier(self.dropout(hidden))  # type: ignore[no-any-return]


class DenseHead(nn.Module):
    """Logits of a sequence or a token: the masked LM's dense layer, activation and LayerNorm, then a linear layer.

    ModernBERT has it for every task, on the first token of a sequence or on each by itself (Warner et al. 2024, as
    released); dense layer and LayerNorm begin with the masked LM's.

    Args:
        config: The encoder's shape.
        width: Of the rows it takes.
        outputs: Number of logits.
    """

    def __init__(self, config: EncoderConfig, width: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width, config.bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(width, outputs)

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.classifier.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """``[rows, width]`` to ``[rows, outputs]``."""
        return self.classifier(self.dropout(self.norm(self.activation(self.dense(hidden)))))  # type: ignore[no-any-return]
