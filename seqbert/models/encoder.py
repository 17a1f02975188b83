"""The shared encoder: embeddings chosen by the batch's vocabulary, blocks shared by all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqbert.data.packing import PackedBatch
from seqbert.errors import DataError
from seqbert.models.attention import packed_attention, reference_attention
from seqbert.models.config import EncoderConfig
from seqbert.models.dropout import Dropout
from seqbert.models.embeddings import Embeddings, layer_norm

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
    """BERT (Devlin et al. 2019), or what its config makes of it, over packed streams of one or several vocabularies.

    Args:
        config: The shape.
        vocabularies: Size of each vocabulary by name. Each has words of its own; positions and blocks are shared.
        mask_ids: The id of [MASK] in each; only ``token_dropout`` asks for it.

    Attributes:
        recomputes: Whether a block's states are thrown away after it, and computed anew in the backward pass (Chen et
            al. 2016, *Training deep nets with sublinear memory cost*): less memory for a third more computing.
        through: How a batch of static shape goes through the embeddings and through each block: :func:`through`, or
            what torch.compile has made of it. Blocks of one kind share what is compiled.
    """

    def __init__(
        self, config: EncoderConfig, vocabularies: Mapping[str, int], mask_ids: Mapping[str, int] | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config, vocabularies, mask_ids)
        self.blocks = nn.ModuleList(Block(config, number) for number in range(config.num_hidden_layers))
        self.final_norm = layer_norm(config) if config.norm_first else None
        self.recomputes = False
        self.through: Callable[..., Tensor] = through
        self.rotary: nn.ModuleDict | None = None
        if config.position == "rotary":
            thetas = {config.theta_of(number) for number in range(config.num_hidden_layers)}
            precision: torch.dtype = getattr(torch, config.rope_precision)
            rotary = {_key(theta): Rotary(config.head_dim, theta, precision) for theta in sorted(thetas)}
            self.rotary = nn.ModuleDict(rotary)

    def forward(
        self, batch: PackedBatch, *, layers: bool = False, attention: bool = False, rows: Tensor | None = None
    ) -> Tensor | EncoderOutput:
        """Hidden states ``[tokens, hidden_size]``; an :class:`EncoderOutput` where more is asked for.

        Attention weights come from the reference backend, which is slower than the others. With ``rows``, the last
        hidden states of these tokens alone, ``[rows, hidden_size]``: nothing that they do not need is computed.

        Raises:
            DataError: A sequence is longer than ``max_position_embeddings``.
        """
        longest = batch.longest
        if longest > self.config.max_position_embeddings:
            raise DataError(
                f'a sequence of {longest} tokens in a batch of "{batch.vocabulary}" is longer than the '
                f"encoder can take: it has {self.config.max_position_embeddings} positions. Lower max_length "
                "to that, or raise model.max_position_embeddings where the weights are new"
            )
        go = through if batch.limit is None else self.through
        hidden = go(self.embeddings, batch)
        rotations = self._rotations(batch)
        all_hidden = [hidden]
        all_weights: list[list[Tensor]] = []
        for number, block in enumerate(cast("Iterable[Block]", self.blocks), start=1):
            is_last = number == len(self.blocks)
            rotation = rotations.get(_key(self.config.theta_of(number - 1)))
            if attention:
                hidden, weights = block.with_attention(hidden, batch, rotation)
                all_weights.append(weights)
            else:
                step = partial(go, block, batch=batch, rotation=rotation, rows=rows if is_last else None)
                hidden = self._recomputed(step, hidden) if self.recomputes else step(hidden)
            if is_last and self.final_norm is not None:
                hidden = self.final_norm(hidden)
            if layers:
                all_hidden.append(hidden)
        if not (layers or attention):
            return hidden
        return EncoderOutput(hidden, all_hidden if layers else None, all_weights if attention else None)

    def _recomputed(self, block: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
        """What a block gives; of what it computes on the way, nothing is kept for the backward pass but its input."""
        draws = self.training and self.config.dropout > 0  # the same mask is drawn again
        return cast(Tensor, checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=draws))

    def _rotations(self, batch: PackedBatch) -> dict[str, Rotation]:
        """The turn of each token of a batch, by the key of the wavelengths' base."""
        if self.rotary is None:
            return {}
        return {key: module(batch.positions) for key, module in self.rotary.items()}


def through(module: nn.Module, *inputs: Any, **others: Any) -> Tensor:
    """What a part of the encoder gives: a function, so that parts which are alike can be compiled as one."""
    return cast(Tensor, module(*inputs, **others))


class Rotation(NamedTuple):
    """By what angle each pair of a head's dimensions is turned at each token.

    Attributes:
        cos: Cosines of the angles, ``[tokens, 1, head_dim / 2]``.
        sin: Their sines.
    """

    cos: Tensor
    sin: Tensor

    def __call__(self, heads: Tensor) -> Tensor:
        """Turns queries or keys, ``[tokens, heads, head_dim]``; dimension ``i`` is paired with ``i + head_dim / 2``."""
        first, second = heads.chunk(2, -1)
        cos, sin = self.cos.to(heads.dtype), self.sin.to(heads.dtype)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021, *RoFormer*, section 3.2): wavelengths of ``2 pi theta ** (2 i / head_dim)``.

    Args:
        head_dim: Width of a head.
        theta: Base of the wavelengths.
        precision: What the frequencies are rounded to: an encoder that was trained with rounded ones needs them.
    """

    frequency: Tensor

    def __init__(self, head_dim: int, theta: float, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        # As a quotient, for the bits that published encoders have: far into a sequence each of them turns the heads.
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2) / head_dim)
        self.register_buffer("frequency", frequency.to(precision).float(), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Moves to another device, but keeps its precision where the weights around it lose theirs."""
        frequency = self.frequency
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.frequency = frequency.to(self.frequency.device)
        return self

    def forward(self, positions: Tensor) -> Rotation:
        """The turns of tokens at these places of their sequences, ``[tokens]``."""
        angle = positions[:, None, None] * self.frequency
        return Rotation(angle.cos(), angle.sin())


def _key(theta: float) -> str:
    """A name for the base of wavelengths, as a module may have."""
    return f"theta_{theta}".replace(".", "_")


class Block(nn.Module):
    """Self-attention, then a feed-forward part, each added to its input.

    LayerNorm stands after each sum (Devlin et al. 2019), or with ``norm_first`` before each part; the first part of the
    first block takes embeddings that are normalised already as they are (Warner et al. 2024, section 2.1.1).

    Args:
        config: The encoder's shape.
        number: Of the block, from 0.
    """

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        is_normed = config.norm_first and config.embedding_norm and number == 0
        self.attention = SelfAttention(config, number)
        self.attention_norm = nn.Identity() if is_normed else layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, rotation: Rotation | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape, or to ``[rows, hidden_size]`` for some of the tokens."""
        mixed = self.attention(self._normed(hidden), batch, rotation, rows)
        return self._rest(hidden if rows is None else hidden.index_select(0, rows), mixed)

    def with_attention(
        self, hidden: Tensor, batch: PackedBatch, rotation: Rotation | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, and each sequence's attention weights ``[heads, length, length]``."""
        mixed, weights = self.attention.with_weights(self._normed(hidden), batch, rotation)
        return self._rest(hidden, mixed), weights

    def _normed(self, hidden: Tensor) -> Tensor:
        return self.attention_norm(hidden) if self.norm_first else hidden

    def _rest(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = hidden + self.dropout(mixed)
        if self.norm_first:
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))  # type: ignore[no-any-return]
        hidden = self.attention_norm(hidden)
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    """Multi-head attention of each sequence to itself (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.config = config
        self.window = config.window_of(number)
        self.query = nn.Linear(config.hidden_size, config.hidden_size, config.bias)
        self.key = nn.Linear(config.hidden_size, config.hidden_size, config.bias)
        self.value = nn.Linear(config.hidden_size, config.hidden_size, config.bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, config.bias)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, rotation: Rotation | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape, or to ``[rows, hidden_size]`` for some of the tokens."""
        mixed = packed_attention(*self._heads(hidden, rotation), batch, **self._options())
        if rows is not None:
            mixed = mixed.index_select(0, rows)
        return self.output(mixed.flatten(1))  # type: ignore[no-any-return]

    def with_weights(
        self, hidden: Tensor, batch: PackedBatch, rotation: Rotation | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, and each sequence's weights ``[heads, length, length]``."""
        mixed, weights = reference_attention(*self._heads(hidden, rotation), batch, **self._options())
        return self.output(mixed.flatten(1)), weights

    def _heads(self, hidden: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        shape = (-1, self.config.num_attention_heads, self.config.head_dim)
        query, key, value = (projection(hidden).view(shape) for projection in (self.query, self.key, self.value))
        return (query, key, value) if rotation is None else (rotation(query), rotation(key), value)

    def _options(self) -> dict[str, Any]:
        return {
            "causal": self.config.causal,
            "window": self.window,
            "dropout": self.config.dropout if self.training else 0.0,
        }


class FeedForward(nn.Module):
    """Two linear layers with the activation between them, on each token alone.

    Where it is gated the first gives two halves: the activation of one is multiplied by the other (Shazeer 2020, *GLU
    Variants Improve Transformer*, equation 6).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.gated
        width = 2 * config.intermediate_size if config.gated else config.intermediate_size
        self.intermediate = nn.Linear(config.hidden_size, width, config.bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.intermediate_size, config.hidden_size, config.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[tokens, hidden_size]`` to the same shape."""
        inner = self.intermediate(hidden)
        if self.gated:
            inner, gate = inner.chunk(2, -1)
            return self.output(self.activation(inner) * gate)  # type: ignore[no-any-return]
        return self.output(self.activation(inner))  # type: ignore[no-any-return]
