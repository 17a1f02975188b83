"""From token ids to the encoder's first hidden states."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.dropout import Dropout

TRAINED_MASKS = 0.15 * 0.8
"""Share of the tokens that were [MASK] when ESM-2 was trained; it is a constant of the model, whatever is masked."""


class Embeddings(nn.Module):
    """Word, learned position and segment embeddings, added up and normalised (Devlin et al. 2019, fig. 2).

    Of these the words alone are always there: rotary positions are no embeddings, and a shape may have no segments and
    no LayerNorm.

    Each vocabulary has words and a LayerNorm of its own. What a position or a segment is does not depend on the
    vocabulary, so these are shared as the blocks are: what one domain learns about them serves all. Where
    ``type_vocab_size`` is 1 both parts of a pair get segment 0: the pair is told apart by [SEP] alone.

    Args:
        config: The encoder's shape.
        vocabularies: Size of each vocabulary by name.
        mask_ids: The id of [MASK] in each; only ``token_dropout`` asks for it.

    Raises:
        ConfigError: ``token_dropout`` is on, and a vocabulary has no [MASK]; or PyTorch cannot take a name.
    """

    def __init__(
        self, config: EncoderConfig, vocabularies: Mapping[str, int], mask_ids: Mapping[str, int] | None = None
    ) -> None:
        super().__init__()
        self.mask_ids = dict(mask_ids or {}) if config.token_dropout else {}
        if config.token_dropout:
            for name in vocabularies.keys() - self.mask_ids.keys():
                raise ConfigError(
                    f'token_dropout zeroes the embeddings of [MASK], and it is not known which token of "{name}" that '
                    "is: the vocabulary needs one, or token_dropout has to be false"
                )
        words = {name: nn.Embedding(size, config.hidden_size) for name, size in vocabularies.items()}
        self.word = by_vocabulary(words)
        self.position: nn.Embedding | None = None
        if config.position == "learned":
            self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment: nn.Embedding | None = None
        if config.type_vocab_size:
            self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm: nn.ModuleDict | None = None
        if config.embedding_norm:
            self.norm = by_vocabulary({name: layer_norm(config) for name in vocabularies})
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states ``[tokens, hidden_size]`` of a batch, by the words of its vocabulary."""
        total: Tensor = self.word[batch.vocabulary](batch.ids)
        if self.mask_ids:
            total = _without_masks(total, batch, self.mask_ids[batch.vocabulary])
        if self.position is not None:
            total = total + self.position(batch.positions)
        if self.segment is not None:
            is_alone = self.segment.num_embeddings == 1
            total = total + self.segment(torch.zeros_like(batch.segment_ids) if is_alone else batch.segment_ids)
        if self.norm is not None:
            total = self.norm[batch.vocabulary](total)
        return self.dropout(total)  # type: ignore[no-any-return]


def _without_masks(words: Tensor, batch: PackedBatch, mask_id: int) -> Tensor:
    """Word embeddings with those of [MASK] zeroed, each sequence scaled as if :data:`TRAINED_MASKS` of it always were.

    The token dropout of ESM-2, which treats hidden tokens as dropped inputs (Lin et al. 2023, as released).
    """
    masked = batch.ids == mask_id
    until = F.pad(masked.cumsum(0), (1, 0))[batch.cu_seqlens.long()]
    lengths = batch.cu_seqlens.diff()
    seen = (lengths - until.diff()).clamp(min=1) / lengths.clamp(min=1)
    scale = (1 - TRAINED_MASKS) / seen
    each = scale.repeat_interleave(lengths, output_size=len(words))
    return words * each.masked_fill(masked, 0.0)[:, None].to(words.dtype)


def layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    """A LayerNorm over hidden states of a shape."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.bias)


def by_vocabulary(modules: Mapping[str, nn.Module]) -> nn.ModuleDict:
    """Modules under the names of vocabularies.

    Raises:
        ConfigError: PyTorch cannot take a name: it is empty, holds a full stop, or is one of its own.
    """
    for name in modules:
        if not name or "." in name or hasattr(nn.ModuleDict(), name):
            raise ConfigError(
                f'"{name}" cannot name a vocabulary: the name must not be empty, hold a full stop, or be one '
                "that PyTorch keeps for itself, such as train, type or values"
            )
    return nn.ModuleDict(modules)
