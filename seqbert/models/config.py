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

    The defaults are those of BERT (Devlin et al. 2019, section 3.1 and appendix A.2); the other fields make of it a
    ModernBERT (Warner et al. 2024, section 2.1) or an ESM-2 (Lin et al. 2023, supplement A.1). ``dropout`` is used on
    hidden states and on attention weights alike. ``position_init`` is how learned position embeddings begin: drawn
    like all weights, or as sinusoids of the same mean square; ``attention_init`` is how the heads of the first block
    begin: drawn like all weights, or each looking at one neighbour; ``bias_init`` is how the biases of the masked LM's
    decoder begin: at 0, or at the logarithms of the tokens' frequencies.

    Attributes:
        type_vocab_size: Segments with embeddings of their own; 0: there are no segment embeddings.
        causal: Whether a token attends only to itself and to those before it.
        position: Learned embeddings, or rotary ones, by which queries and keys are turned (Su et al. 2021).
        norm_first: Whether LayerNorm stands before each part of a block and after the last block, or after each part.
        gated: Whether the feed-forward part is gated: activation of one projection times another (Shazeer 2020).
        bias: Whether linear layers and LayerNorms have biases; the masked LM's decoder always has one.
        embedding_norm: Whether the embeddings are normalised.
        attention_window: How far a token sees to each side in local blocks, in tokens; None: every block sees all.
        global_attention_every: Every so manieth block, from the first, sees the whole sequence.
        rope_theta: Base of the rotary wavelengths.
        local_rope_theta: That of local blocks, if it differs.
        token_dropout: Whether the embeddings of [MASK] are zeroed, and the others scaled up as if 12 % always were.
        rope_precision: What the frequencies of rotary positions are rounded to; those of the published ESM-2 were
            trained in float16.
        task_head: What a task puts on the encoder; see :func:`~seqbert.models.heads.build_head`.

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
    attention_init: Literal["normal", "neighbours"] = "normal"
    bias_init: Literal["zeros", "unigram"] = "zeros"
    hidden_act: str = "gelu"
    causal: bool = False
    position: Literal["learned", "rotary"] = "learned"
    norm_first: bool = False
    gated: bool = False
    bias: bool = True
    embedding_norm: bool = True
    attention_window: int | None = None
    global_attention_every: int = 1
    rope_theta: float = 10000.0
    local_rope_theta: float | None = None
    token_dropout: bool = False
    rope_precision: Literal["float32", "float16", "bfloat16"] = "float32"
    task_head: Literal["bert", "modern"] = "bert"

    def __post_init__(self) -> None:
        # Types are checked too: the values may come from a config.json that anyone wrote.
        for name in _SIZES:
            value = getattr(self, name)
            least = 0 if name == "type_vocab_size" else 1
            if name == "attention_window" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} cannot be shared out evenly among "
                f"{self.num_attention_heads} attention heads: make it a multiple of num_attention_heads"
            )
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout!r}; it must be a number of at least 0 and below 1")
        for name in ("layer_norm_eps", "initializer_range", "rope_theta", "local_rope_theta"):
            value = getattr(self, name)
            if name == "local_rope_theta" and value is None:
                continue
            if not _is_number(value) or not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value!r}; it must be a number above 0")
        if self.hidden_act not in HIDDEN_ACTS:
            raise ConfigError(
                f'hidden_act "{self.hidden_act}" is unknown; known are {", ".join(HIDDEN_ACTS)}.'
                + nearest(str(self.hidden_act), HIDDEN_ACTS)
            )
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be true or false")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                listed = f"{', '.join(known[:-1])} or {known[-1]}"
                raise ConfigError(f'{name} is "{getattr(self, name)}"; it must be {listed}')
        if self.attention_init == "neighbours" and self.token_dropout:
            raise ConfigError(
                "attention_init is neighbours, and with token_dropout masked tokens have no embedding by which their "
                "heads could find them: leave one of them out"
            )
        if self.attention_init == "neighbours" and self.position == "learned" and self.position_init == "normal":
            raise ConfigError(
                "attention_init is neighbours, and heads find neighbours by rotary positions, or by learned ones that "
                "begin as sinusoids: set position_init to sinusoidal"
            )
        if self.position == "rotary" and self.head_dim % 2:
            raise ConfigError(
                f"hidden_size {self.hidden_size} over {self.num_attention_heads} heads makes them {self.head_dim} "
                "wide, and rotary positions turn pairs: make that an even number"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def is_local(self, block: int) -> bool:
        """Whether the tokens of this block, counted from 0, see :attr:`attention_window` tokens to each side only."""
        return self.attention_window is not None and block % self.global_attention_every != 0

    def window_of(self, block: int) -> int | None:
        """How far the tokens of a block see to each side; None: as far as their sequence goes."""
        return self.attention_window if self.is_local(block) else None

    def theta_of(self, block: int) -> float:
        """Base of a block's rotary wavelengths."""
        return self.local_rope_theta if self.is_local(block) and self.local_rope_theta else self.rope_theta


_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "attention_window",
    "global_attention_every",
)

_CHOICES = {
    "position_init": ("normal", "sinusoidal"),
    "attention_init": ("normal", "neighbours"),
    "bias_init": ("zeros", "unigram"),
    "position": ("learned", "rotary"),
    "rope_precision": ("float32", "float16", "bfloat16"),
    "task_head": ("bert", "modern"),
}

_SWITCHES = ("causal", "norm_first", "gated", "bias", "embedding_norm", "token_dropout")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bert(layers: int, hidden_size: int) -> EncoderConfig:
    return EncoderConfig(hidden_size, layers, hidden_size // 64, 4 * hidden_size)


def _modern(layers: int, hidden_size: int, intermediate_size: int | None = None) -> EncoderConfig:
    return EncoderConfig(
        hidden_size,
        layers,
        hidden_size // 64,
        intermediate_size or round(hidden_size * 8 / 3 / 64) * 64,
        max_position_embeddings=8192,
        type_vocab_size=0,
        dropout=0.0,
        layer_norm_eps=1e-5,
        position="rotary",
        norm_first=True,
        gated=True,
        bias=False,
        attention_window=64,
        global_attention_every=3,
        rope_theta=160000.0,
        local_rope_theta=10000.0,
        task_head="modern",
    )


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
    "modern-tiny": _modern(2, 128),
    "modern-mini": _modern(4, 256),
    "modern-small": _modern(4, 512),
    "modern-medium": _modern(8, 512),
    "modern-base": _modern(22, 768, 1152),
    "modern-large": _modern(28, 1024, 2624),
    **{
        f"modern-L{layers}-H{hidden_size}": _modern(layers, hidden_size)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden_size in (128, 256, 512, 768)
    },
}
"""Sizes by name. BERT's are the 24 of Turc et al. 2019 (*Well-Read Students Learn Better*, as released), of which five
have names of their own, and BERT-large (Devlin et al. 2019, section 3). Those of ModernBERT are its base and large
(Warner et al. 2024, table 4), and the same 24 sizes with a gated feed-forward part of about as many parameters as
BERT's. Each head is 64 wide."""


@dataclasses.dataclass
class ModelConfig:
    """The ``model:`` section of a config: a preset, and any field that differs from it.

    Raises:
        ConfigError: The preset is unknown, or a value cannot be used.
    """

    preset: str = "bert-mini"
    """Published size to start from: bert-tiny, bert-mini, bert-small, bert-medium, bert-base, bert-large, or
    one of the 24 sizes of layers 2, 4, 6, 8, 10, 12 by hidden size 128, 256, 512, 768 as bert-L10-H512; and the same
    with modern- in front for ModernBERT: modern-base has 22 layers, modern-large 28."""
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
    """Number of segments that have embeddings of their own: 2 tells the parts of a pair apart, 1 does not, and with 0
    there are none: the parts are told apart by [SEP]."""
    dropout: float | None = None
    """Share of hidden states and of attention weights that is zeroed in training."""
    layer_norm_eps: float | None = None
    """What LayerNorm adds to the variance."""
    initializer_range: float | None = None
    """Standard deviation of new weights; BERT's 0.02 is about half of 1/sqrt(hidden_size) at its size."""
    position_init: Literal["normal", "sinusoidal"] | None = None
    """How learned positions begin: drawn like all weights, or as sinusoids, from which neighbours are found sooner."""
    attention_init: Literal["normal", "neighbours"] | None = None
    """How the heads of the first block begin: drawn like all weights, or each looking at one of the nearest tokens,
    which saves the steps that it takes to find them; needs rotary or sinusoidal positions."""
    bias_init: Literal["zeros", "unigram"] | None = None
    """How the biases of the masked LM's decoder begin: at 0, or at the logarithm of how frequent each token is in the
    training part, which saves the steps that it takes to learn that."""
    hidden_act: str | None = None
    """Activation: gelu, gelu_new (its tanh approximation, also gelu_pytorch_tanh) or relu."""
    causal: bool | None = None
    """Whether a token sees only itself and what stands before it (left to right) instead of both sides."""
    position: Literal["learned", "rotary"] | None = None
    """Learned position embeddings, or rotary ones, which turn queries and keys by their place (Su et al. 2021)."""
    norm_first: bool | None = None
    """Whether LayerNorm stands before each part of a block (pre-LayerNorm) rather than after it."""
    gated: bool | None = None
    """Whether the feed-forward part is gated (GeGLU with gelu; Shazeer 2020), with three matrices in place of two."""
    bias: bool | None = None
    """Whether linear layers and LayerNorms have biases."""
    embedding_norm: bool | None = None
    """Whether the embeddings are normalised."""
    attention_window: int | None = None
    """How many tokens a token sees to each side in local blocks; in the bert presets all blocks see everything,
    and with global_attention_every 1 too."""
    global_attention_every: int | None = None
    """Every so manieth block, from the first, sees whole sequences; the others are local. 1: all blocks do."""
    rope_theta: float | None = None
    """Base of the rotary wavelengths."""
    local_rope_theta: float | None = None
    """Base of the rotary wavelengths in local blocks, if it differs."""
    token_dropout: bool | None = None
    """Whether embeddings of [MASK] are zeroed and the others scaled to match, as in ESM-2."""
    rope_precision: Literal["float32", "float16", "bfloat16"] | None = None
    """What the frequencies of rotary positions are rounded to: float32, or float16 as in the published ESM-2."""
    task_head: Literal["bert", "modern"] | None = None
    """What a task puts on the encoder before its linear layer: bert's pooler where there is one logit row a sequence,
    and nothing where there is one a token; or modern's dense layer, activation and LayerNorm in both."""

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
