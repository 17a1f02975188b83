"""From token ids to the encoder's first hidden states."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.models.config import EncoderConfig


class Embeddings(nn.Module):
    """Word, learned position and segment embeddings of one vocabulary, added up (Devlin et al. 2019, fig. 2).

    Where ``type_vocab_size`` is 1 both parts of a pair get segment 0: the pair is told apart by [SEP] alone.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states ``[tokens, hidden_size]`` of a batch of this vocabulary."""
        segment_ids = batch.segment_ids
        if self.segment.num_embeddings == 1:
            segment_ids = torch.zeros_like(segment_ids)
        total = self.word(batch.ids) + self.position(batch.positions) + self.segment(segment_ids)
        hidden: Tensor = self.dropout(self.norm(total))
        return hidden
