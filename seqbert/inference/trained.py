"""A model of a run, ready to be asked: weights, tokenizer, and the domain that reads its sequences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.packing import PackedBatch, pack
from seqbert.domain import SPECIAL_TOKENS, Domain
from seqbert.errors import DataError
from seqbert.models import hub
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.model import Model
from seqbert.training.run_folder import open_run


@dataclasses.dataclass(slots=True)
class Trained:
    """A trained model with its domain.

    Attributes:
        model: The model, in evaluation mode.
        domain: The plugin, with the run's options and tokenizer.
    """

    model: Model
    domain: Domain

    @classmethod
    def of_run(cls, run: str | Path, domain: str | None = None) -> Trained:
        """Loads the model of a run, or of one of its domains.

        Raises:
            CheckpointError: if there is no model, or it is unclear which domain is meant.
        """
        found = open_run(run, domain)
        plugin_type = registry.load(found.domain)
        options: Any = config_tree.load(plugin_type.Options, dict(found.options or {}))
        plugin = plugin_type(options)
        plugin.use(load_tokenizer(found.folder))
        checkpoint = hub.read_checkpoint(found.folder)
        model = Model(checkpoint.config, {found.domain: checkpoint.vocab_size}, {found.domain: checkpoint.heads})
        hub.load_into(model, found.domain, checkpoint)
        return cls(model.eval(), plugin)

    @property
    def heads(self) -> nn.ModuleDict:
        """The heads of the domain's vocabulary."""
        return cast(nn.ModuleDict, self.model.heads[self.domain.name])

    def token_ids(self, *tokens: str) -> list[int]:
        """Ids of tokens as the vocabulary spells them."""
        return [cast(int, self.domain.vocabulary.token_to_id(token)) for token in tokens]

    def sequence(self, ids: np.ndarray) -> PackedBatch:
        """One sequence between [CLS] and [SEP] as a batch.

        Raises:
            DataError: if it is longer than the encoder can take.
        """
        begin, end = self.token_ids(*SPECIAL_TOKENS[2:4])
        limit = self.model.config.max_position_embeddings - 2
        if len(ids) > limit:
            raise DataError(f"The sequence has {len(ids)} tokens, and this model takes {limit} at most.")
        return pack(self.domain.name, [np.concatenate([[begin], ids, [end]])])

    @torch.inference_mode()
    def hidden(self, batch: PackedBatch) -> Tensor:
        """Hidden states of a batch, ``[tokens, hidden_size]``."""
        return cast(Tensor, self.model.encoder(batch))
