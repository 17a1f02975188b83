"""Parameters and floating-point operations of an encoder, part by part, from its config alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from seqbert.models.config import EncoderConfig
from seqbert.models.heads import POOLED, head_outputs

TRAINING_FACTOR = 3
"""Operations of a training step over those of its forward pass: each product has two in the backward pass,
one for the input's gradient and one for the weight's (Kaplan et al. 2020, *Scaling Laws for Neural Language
Models*, 2.1)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What an encoder with its heads is made of and what it costs.

    Attributes:
        parameters: Number of parameters by part. The masked LM's decoder is the word embeddings' weight and
            counts once, there.
        forward_flops: Floating-point operations of a forward pass by part, per token of the stream.
        length: Length of the sequences, in tokens, that the operations are for.
        target_share: Share of the tokens that the masked LM predicts.
    """

    parameters: dict[str, int]
    forward_flops: dict[str, float]
    length: int
    target_share: float

    @property
    def total_parameters(self) -> int:
        """All parameters."""
        return sum(self.parameters.values())

    @property
    def encoder_parameters(self) -> int:
        """Parameters of embeddings and blocks."""
        return sum(count for part, count in self.parameters.items() if part not in _HEAD_PARTS)

    @property
    def pooled_encoder_parameters(self) -> int:
        """Those and the pooler, where there is one: what Hugging Face's ``BertModel`` counts."""
        return self.encoder_parameters + self.parameters.get("pooler", 0)

    @property
    def forward_flops_per_token(self) -> float:
        """Operations of a forward pass per token."""
        return sum(self.forward_flops.values())

    @property
    def training_flops_per_token(self) -> float:
        """Operations of a forward and a backward pass per token, without activations computed twice."""
        return TRAINING_FACTOR * self.forward_flops_per_token


_HEAD_PARTS = ("masked LM head", "pooler", "pair classifier", "task head")


def describe(
    config: EncoderConfig,
    vocab_size: int = 30522,
    heads: Collection[str] | Mapping[str, int] = ("masked_lm", "pair"),
    *,
    length: int = 128,
    target_share: float = 0.15,
) -> Description:
    """Counts the parameters and operations of an encoder for one vocabulary.

    A multiply-add is two operations; only matrix products are counted, as is usual (Kaplan et al. 2020, table
    1). With H for ``hidden_size``, I for ``intermediate_size``, V for ``vocab_size`` and L for ``length``, a
    block costs a token 8H² for the projections to queries, keys, values and output, 4LH for attention's two
    products (of which a causal kernel may skip up to half), and 4HI for the feed-forward part, or 6HI where it is
    gated. In a local block a token sees no more than its window, and L is the mean of what the tokens of a sequence
    see: kernels that multiply beyond it and throw that away do more. The masked LM
    costs a *target* 2H² + 2HV, the pair head a *sequence* 2H² + 4H. A task's head of C outputs costs 2HC a sequence or
    a token, and a pooler or a dense layer, where it has one, 2H² more.

    Args:
        config: The encoder's shape.
        vocab_size: Number of word embeddings; by default that of the published English BERT.
        heads: Kinds of heads, with the number of outputs of those that need one, as for ``Model``.
        length: Tokens in a sequence.
        target_share: Share of the tokens that the masked LM predicts; 1 for a causal model.

    Raises:
        ConfigError: A head is of no known kind.

    >>> from seqbert.models.config import PRESETS
    >>> describe(PRESETS["bert-tiny"], heads=()).total_parameters
    4369408
    """
    kinds = head_outputs(heads, vocab_size)
    hidden, layers, intermediate = config.hidden_size, config.num_hidden_layers, config.intermediate_size
    bias = int(config.bias)
    norm = (1 + bias) * hidden
    square = hidden * hidden + bias * hidden  # a linear layer from hidden states to hidden states
    inner = (2 if config.gated else 1) * intermediate
    normed_before = config.norm_first and config.embedding_norm  # the first block takes its input as it is
    seen = sum(_seen(length, config.window_of(block)) for block in range(layers))
    parameters = {
        "word embeddings": vocab_size * hidden,
        "position embeddings": config.max_position_embeddings * hidden if config.position == "learned" else 0,
        "segment embeddings": config.type_vocab_size * hidden,
        "embeddings LayerNorm": norm if config.embedding_norm else 0,
        "attention": layers * 4 * square,
        "feed-forward": layers * (hidden * (inner + intermediate) + bias * (inner + hidden)),
        "blocks LayerNorm": (layers * 2 - normed_before) * norm,
        "last LayerNorm": norm if config.norm_first else 0,
    }
    parameters = {part: count for part, count in parameters.items() if count}
    forward_flops: dict[str, float] = {
        "attention projections": layers * 8 * hidden**2,
        "attention scores and sums": 4 * hidden * seen,
        "feed-forward": layers * 2 * hidden * (inner + intermediate),
    }
    if "masked_lm" in kinds:
        parameters["masked LM head"] = square + norm + vocab_size
        forward_flops["masked LM head"] = target_share * (2 * hidden**2 + 2 * hidden * vocab_size)
    if "pair" in kinds:
        parameters["pooler"] = hidden * hidden + hidden
        parameters["pair classifier"] = 2 * hidden + 2
        forward_flops["pair head"] = (2 * hidden**2 + 4 * hidden) / length
    for kind, outputs in kinds.items():
        if kind not in ("masked_lm", "pair"):
            if config.task_head == "modern":
                dense, has_dense = square + norm, True
            else:
                dense, has_dense = hidden * hidden + hidden, kind in POOLED
            parameters["task head"] = dense * has_dense + outputs * (hidden + 1)
            rows = 1 / length if kind in POOLED else 1
            forward_flops["task head"] = rows * (2 * hidden**2 * has_dense + 2 * hidden * outputs)
    return Description(parameters, forward_flops, length, target_share)


def _seen(length: int, window: int | None) -> float:
    """How many tokens one of a sequence sees in the mean, itself among them, ``window`` of them to each side.

    >>> _seen(4, None), _seen(4, 1)
    (4.0, 2.5)
    """
    if window is None or window >= length:
        return float(length)
    return 2 * window + 1 - window * (window + 1) / length
