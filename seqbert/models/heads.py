"""What stands on the encoder: small modules that turn hidden states into logits."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqbert.errors import ConfigError, nearest
from seqbert.models.config import EncoderConfig
from seqbert.models.encoder import ACTIVATIONS

HEADS = ("masked_lm", "pair")
"""Kinds of heads: masked (with a causal encoder, left-to-right) LM, and two classes for a pair."""


def check_heads(kinds: Iterable[str]) -> None:
    """Makes sure that kinds of heads are known.

    Raises:
        ConfigError: One is not.
    """
    for kind in kinds:
        if kind not in HEADS:
            raise ConfigError(f'there is no head "{kind}"; there are {" and ".join(HEADS)}.' + nearest(kind, HEADS))


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
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(word.num_embeddings))
        self._tied = (word,)  # in a tuple, where nn.Module does not register it a second time

    def forward(self, hidden: Tensor) -> Tensor:
        """``[targets, hidden_size]`` to ``[targets, vocab_size]``; call it on the targets' rows only."""
        (word,) = self._tied
        return F.linear(self.norm(self.activation(self.dense(hidden))), word.weight, self.bias)


class PairHead(nn.Module):
    """Logits of two classes for a pair: pooler and classifier of next-sentence prediction.

    Devlin et al. 2019, section 3.1, task 2: a dense layer with tanh over [CLS], then a linear layer. In
    published checkpoints class 0 says that the second part follows the first.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """First tokens of the sequences, ``[sequences, hidden_size]``, to ``[sequences, 2]``."""
        return self.classifier(torch.tanh(self.pooler(hidden)))  # type: ignore[no-any-return]
