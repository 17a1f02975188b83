"""The shape of an encoder: presets with published sizes, and the fields that change them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from seqbert.errors import ConfigError, nearest

HIDDEN_ACTS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
"""Activations by their Hugging Face names. The two in the middle are one: GELU's tanh approximation."""


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Everything that decides an encoder's shape and function, apart from its vocabularies.

    The defaults are those of BERT (Devlin et al. 2019, section 3.1 and appendix A.2). ``dropout`` is used on
    hidden states and on attention weights alike. ``causal`` lets a token attend only to itself and to those
    before it. ``position_init`` is how the learned position embeddings begin: drawn like all weights, or as
    sinusoids of the same mean square.

    Raises:
        ConfigError: A value cannot be used; the message names the field.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    position_init: Literal["normal", "sinusoidal"] = "normal"
    hidden_act: str = "gelu"
    causal: bool = False

    def __post_init__(self) -> None:
        # Types are checked too: the values may come from a config.json that anyone wrote.
        for name in _SIZES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} cannot be shared out evenly among "
                f"{self.num_attention_heads} attention heads: make it a multiple of num_attention_heads"
            )
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout!r}; it must be a number of at least 0 and below 1")
        for name in ("layer_norm_eps", "initializer_range"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value!r}; it must be a number above 0")
        if self.hidden_act not in HIDDEN_ACTS:
            raise ConfigError(
                f'hidden_act "{self.hidden_act}" is unknown; known are {", ".join(HIDDEN_ACTS)}.'
                + nearest(str(self.hidden_act), HIDDEN_ACTS)
            )
        if not isinstance(self.causal, bool):
            raise ConfigError(f"causal is {self.causal!r}; it must be true or false")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bert(layers: int, hidden_size: int) -> EncoderConfig:
    return EncoderConfig(hidden_size, layers, hidden_size // 64, 4 * hidden_size)


PRESETS: dict[str, EncoderConfig] = {
    "bert-tiny": _bert(2, 128),
    "bert-mini": _bert(4, 256),
    "bert-small": _bert(4, 512),
    "bert-medium": _bert(8, 512),
    "bert-base": _bert(12, 768),
    "bert-large": _bert(24, 1024),
    **{
        f"bert-L{layers}-H{hidden_size}": _bert(layers, hidden_size)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden_size in (128, 256, 512, 768)
    },
}
"""Sizes by name: the 24 of Turc et al. 2019 (*Well-Read Students Learn Better*, as released), of which five
have names of their own, and BERT-large (Devlin et al. 2019, section 3). Each head is 64 wide."""


@dataclasses.dataclass
class ModelConfig:
    """The ``model:`` section of a config: a preset, and any field that differs from it.

    Raises:
        ConfigError: The preset is unknown, or a value cannot be used.
    """

    preset: str = "bert-mini"
    """Published size to start from: bert-tiny, bert-mini, bert-small, bert-medium, bert-base, bert-large, or
    one of the 24 sizes of layers 2, 4, 6, 8, 10, 12 by hidden size 128, 256, 512, 768 as bert-L10-H512."""
    hidden_size: int | None = None
    """Width of the hidden states, a multiple of num_attention_heads. Null here and below: the preset's."""
    num_hidden_layers: int | None = None
    """Number of blocks."""
    num_attention_heads: int | None = None
    """Attention heads in each block."""
    intermediate_size: int | None = None
    """Width between a block's two feed-forward layers; the presets have four times hidden_size."""
    max_position_embeddings: int | None = None
    """Longest sequence that the encoder can take, in tokens, [CLS] and [SEP] included."""
    type_vocab_size: int | None = None
    """Number of segments that have embeddings of their own: 2 tells the parts of a pair apart, 1 does not."""
    dropout: float | None = None
    """Share of hidden states and of attention weights that is zeroed in training."""
    layer_norm_eps: float | None = None
    """What LayerNorm adds to the variance."""
    initializer_range: float | None = None
    """Standard deviation of new weights; BERT's 0.02 is about half of 1/sqrt(hidden_size) at its size."""
    position_init: Literal["normal", "sinusoidal"] | None = None
    """How learned positions begin: drawn like all weights, or as sinusoids, from which neighbours are found sooner."""
    hidden_act: str | None = None
    """Activation: gelu, gelu_new (its tanh approximation, also gelu_pytorch_tanh) or relu."""
    causal: bool | None = None
    """Whether a token sees only itself and what stands before it (left to right) instead of both sides."""

    def __post_init__(self) -> None:
        self.resolve()

    def resolve(self) -> EncoderConfig:
        """The preset with every field that is set put in its place.

        >>> ModelConfig("bert-tiny", hidden_size=192, num_attention_heads=3).resolve().head_dim
        64
        """
        if self.preset not in PRESETS:
            raise ConfigError(
                f'there is no preset "{self.preset}"; there are {", ".join(PRESETS)}.' + nearest(self.preset, PRESETS)
            )
        changes: dict[str, Any] = {
            field.name: value
            for field in dataclasses.fields(EncoderConfig)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(PRESETS[self.preset], **changes)
