"""The shared encoder: embeddings chosen by the batch's vocabulary, blocks shared by all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.errors import DataError
from seqbert.models.attention import packed_attention, reference_attention
from seqbert.models.config import EncoderConfig
from seqbert.models.dropout import Dropout
from seqbert.models.embeddings import Embeddings

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
"""What the names of ``hidden_act`` stand for."""


@dataclasses.dataclass(slots=True)
class EncoderOutput:
    """What the encoder gives when more than the last hidden states is asked for.

    Attributes:
        hidden: The last hidden states, ``[tokens, hidden_size]``.
        layers: The embeddings' output and then each block's, ``num_hidden_layers + 1`` tensors shaped like
            ``hidden``; None where they were not asked for.
        attention: For each block a list with the weights of each sequence, ``[heads, length, length]``: query
            by key, rows sum to 1; None where they were not asked for.
    """

    hidden: Tensor
    layers: list[Tensor] | None = None
    attention: list[list[Tensor]] | None = None


class Encoder(nn.Module):
    """BERT (Devlin et al. 2019) over packed streams of one or several vocabularies.

    Args:
        config: The shape.
        vocabularies: Size of each vocabulary by name. Each has words of its own; positions and blocks are shared.
    """

    def __init__(self, config: EncoderConfig, vocabularies: Mapping[str, int]) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config, vocabularies)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))

    def forward(
        self, batch: PackedBatch, *, layers: bool = False, attention: bool = False, rows: Tensor | None = None
    ) -> Tensor | EncoderOutput:
        """Hidden states ``[tokens, hidden_size]``; an :class:`EncoderOutput` where more is asked for.

        Attention weights come from the reference backend, which is slower than the others. With ``rows``, the last
        hidden states of these tokens alone, ``[rows, hidden_size]``: nothing that they do not need is computed.

        Raises:
            DataError: A sequence is longer than ``max_position_embeddings``.
        """
        longest = max(batch.lengths, default=0)
        if longest > self.config.max_position_embeddings:
            raise DataError(
                f'a sequence of {longest} tokens in a batch of "{batch.vocabulary}" is longer than the '
                f"encoder can take: it has {self.config.max_position_embeddings} positions. Lower max_length "
                "to that, or raise model.max_position_embeddings where the weights are new"
            )
        hidden: Tensor = self.embeddings(batch)
        all_hidden = [hidden]
        all_weights: list[list[Tensor]] = []
        for number, block in enumerate(cast("Iterable[Block]", self.blocks), start=1):
            wanted = rows if number == len(self.blocks) else None
            if attention:
                hidden, weights = block.with_attention(hidden, batch)
                all_weights.append(weights)
            else:
                hidden = block(hidden, batch, wanted)
            if layers:
                all_hidden.append(hidden)
        if not (layers or attention):
            return hidden
        return EncoderOutput(hidden, all_hidden if layers else None, all_weights if attention else None)


class Block(nn.Module):
    """Self-attention, then a feed-forward part; each sum with its input is normalised (post-LayerNorm)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape, or to ``[rows, hidden_size]`` for some of the tokens."""
        mixed = self.attention(hidden, batch, rows)
        return self._rest(hidden if rows is None else hidden.index_select(0, rows), mixed)

    def with_attention(self, hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, list[Tensor]]:
        """The same, and each sequence's attention weights ``[heads, length, length]``."""
        mixed, weights = self.attention.with_weights(hidden, batch)
        return self._rest(hidden, mixed), weights

    def _rest(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        hidden = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden


class SelfAttention(nn.Module):
    """Multi-head attention of each sequence to itself (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape, or to ``[rows, hidden_size]`` for some of the tokens."""
        mixed = packed_attention(*self._heads(hidden), batch, **self._options())
        if rows is not None:
            mixed = mixed.index_select(0, rows)
        return self.output(mixed.flatten(1))  # type: ignore[no-any-return]

    def with_weights(self, hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, list[Tensor]]:
        """The same, and each sequence's weights ``[heads, length, length]``."""
        mixed, weights = reference_attention(*self._heads(hidden), batch, **self._options())
        return self.output(mixed.flatten(1)), weights

    def _heads(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = (-1, self.config.num_attention_heads, self.config.head_dim)
        query, key, value = (projection(hidden).view(shape) for projection in (self.query, self.key, self.value))
        return query, key, value

    def _options(self) -> dict[str, Any]:
        return {"causal": self.config.causal, "dropout": self.config.dropout if self.training else 0.0}


class FeedForward(nn.Module):
    """Two linear layers with the activation between them, on each token alone."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape."""
        return self.output(self.activation(self.intermediate(hidden)))  # type: ignore[no-any-return]
