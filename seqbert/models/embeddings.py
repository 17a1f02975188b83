"""From token ids to the encoder's first hidden states."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.dropout import Dropout


class Embeddings(nn.Module):
    """Word, learned position and segment embeddings, added up and normalised (Devlin et al. 2019, fig. 2).

    Each vocabulary has words and a LayerNorm of its own. What a position or a segment is does not depend on the
    vocabulary, so these are shared as the blocks are: what one domain learns about them serves all. Where
    ``type_vocab_size`` is 1 both parts of a pair get segment 0: the pair is told apart by [SEP] alone.
    """

    def __init__(self, config: EncoderConfig, vocabularies: Mapping[str, int]) -> None:
        super().__init__()
        words = {name: nn.Embedding(size, config.hidden_size) for name, size in vocabularies.items()}
        norms = {name: nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) for name in vocabularies}
        self.word = by_vocabulary(words)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = by_vocabulary(norms)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states ``[tokens, hidden_size]`` of a batch, by the words of its vocabulary."""
        segment_ids = batch.segment_ids
        if self.segment.num_embeddings == 1:
            segment_ids = torch.zeros_like(segment_ids)
        words = self.word[batch.vocabulary](batch.ids)
        total = words + self.position(batch.positions) + self.segment(segment_ids)
        hidden: Tensor = self.dropout(self.norm[batch.vocabulary](total))
        return hidden


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
