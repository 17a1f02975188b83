"""Loads the model of a run together with the domain that reads its sequences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.vocabulary import missing_special_tokens
from seqbert.domain import Domain
from seqbert.errors import CheckpointError
from seqbert.models import hub
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.model import Model
from seqbert.training.device import Device
from seqbert.training.run_folder import TrainedModel, open_run


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its domain.

    Attributes:
        model: The model, in evaluation mode, on its device.
        domain: The plugin, with the run's options and tokenizer.
        labels: The names of the classes that config.json has; empty where it has none.
        found: Where it was found.
    """

    model: Model
    domain: Domain
    labels: tuple[str, ...]
    found: TrainedModel


def load_model(run: str | Path, domain: str | None, device: Device) -> LoadedModel:
    """Loads the model of a run, or of one of its domains.

    Raises:
        CheckpointError: There is no model, it is unclear which domain is meant, or a file is damaged.
    """
    found = open_run(run, domain)
    plugin_type = registry.load(found.domain)
    options: Any = config_tree.load(plugin_type.Options, dict(found.options or {}))
    plugin = plugin_type(options)
    tokenizer = load_tokenizer(found.folder)
    if missing := missing_special_tokens(tokenizer):
        raise CheckpointError(
            f'The tokenizer of "{run}" has no {", ".join(missing)}: nothing can be asked of this model.'
        )
    plugin.use(tokenizer)
    checkpoint = hub.read_checkpoint(found.folder)
    sizes, heads = {found.domain: checkpoint.vocab_size}, {found.domain: checkpoint.heads}
    mask_ids = checkpoint.mask_ids(found.domain)
    model = Model(checkpoint.config, sizes, heads, checkpoint.features, mask_ids)
    report = hub.load_into(model, found.domain, checkpoint)
    lacking = [name for name in report.newly_initialised if name.startswith("heads.") and ".pair." not in name]
    if lacking:
        raise CheckpointError(f'The model "{found.folder}" lacks weights of its head: {", ".join(lacking)}.')
    return LoadedModel(device.place(model).eval(), plugin, checkpoint.labels, found)
