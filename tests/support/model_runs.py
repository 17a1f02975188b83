"""Folders of runs with random weights, for tests of what a model is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from seqbert import config as config_tree
from seqbert import registry
from seqbert.models import hub
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model


def write_run(
    folder: Path,
    domain: str,
    options: Mapping[str, Any] | None = None,
    segments: tuple[str, ...] = (),
    max_length: int = 24,
    heads: tuple[str, ...] = ("masked_lm",),
    **shape: Any,
) -> Path:
    """Writes a run of a small encoder with random weights, which stand for what training finds.

    Args:
        folder: Where the run goes.
        domain: The plugin.
        options: Of the plugin.
        segments: What its tokenizer is trained on, where its alphabet is not fixed.
        max_length: Tokens of the sequences that it is said to be trained on.
        heads: Kinds of heads that it has.
        shape: Of the encoder, where it is to be another.
    """
    plugin_type = registry.load(domain)
    plugin = plugin_type(config_tree.load(plugin_type.Options, dict(options or {})))
    tokenizer = plugin.tokenizer(iter(segments), None)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = EncoderConfig(**{**sizes, "max_position_embeddings": 32, "initializer_range": 0.3, **shape})
    model = Model(config, {domain: tokenizer.get_vocab_size()}, {domain: heads})
    model.initialise(seed=0)
    folder.mkdir(parents=True)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    hub.save(model, domain, folder / "model", path, max_length)
    tree = {"domains": {domain: {"options": dict(options or {})}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return folder
