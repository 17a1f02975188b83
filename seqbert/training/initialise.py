"""Where a run begins: random weights, another run, or a Hugging Face folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from seqbert.data.vocabulary import missing_special_tokens
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models import hub
from seqbert.models.config import EncoderConfig, ModelConfig
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.initialisation import Undrawn
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model
from seqbert.training.mapped import map_vocabulary, special_tokens
from seqbert.training.run_folder import RunFolder, domains_of, open_run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FREE = ("dropout", "causal", "initializer_range", "position_init", "attention_init", "bias_init")
"""What a config may ask for whatever the initial weights have: the use of them, and how others begin."""

InitParts = Literal["all", "embeddings", "shape"]
"""What is taken of initial weights: all of them, the embeddings alone, or none but the shape."""


@dataclasses.dataclass(slots=True)
class Initial:
    """The weights that a run begins with.

    Attributes:
        checkpoints: By vocabulary; one of another name gives only the blocks.
        source: What the user called it.
    """

    checkpoints: dict[str, hub.Checkpoint]
    source: str

    @property
    def config(self) -> EncoderConfig:
        """Shape of the encoder."""
        return next(iter(self.checkpoints.values())).config

    def giver(self, vocabulary: str) -> hub.Checkpoint:
        """The checkpoint whose words a vocabulary can be mapped onto: its own, or the only one there is.

        Raises:
            CheckpointError: There are several others.
        """
        if vocabulary in self.checkpoints:
            return self.checkpoints[vocabulary]
        if len(self.checkpoints) > 1:
            raise CheckpointError(
                f'"{self.source}" (init) has the vocabularies {", ".join(self.checkpoints)}, and it is unclear onto '
                f'which of them "{vocabulary}" is to be mapped: name the folder of one, such as model/NAME in the run.'
            )
        return next(iter(self.checkpoints.values()))

    def mapped(self, vocabulary: str, tokenizer: Tokenizer, seed: int) -> dict[int, int]:
        """For each id of a domain's tokenizer the id of the word in :meth:`giver` that stands for it.

        Raises:
            CheckpointError: It is unclear which vocabulary is meant.
            ConfigError: There are too few words.
        """
        return map_vocabulary(load_tokenizer(self.giver(vocabulary).folder), tokenizer, seed)

    def tokenizer(self, vocabulary: str) -> str | None:
        """The tokenizer that goes with the embeddings of a vocabulary, as JSON; None where there are none."""
        if vocabulary not in self.checkpoints:
            return None
        tokenizer = load_tokenizer(self.checkpoints[vocabulary].folder)
        if missing := missing_special_tokens(tokenizer):
            raise CheckpointError(
                f'The tokenizer of "{self.source}" has no {", ".join(missing)}, and training needs them: set '
                "the domain's vocabulary to replace."
            )
        return tokenizer.to_str()


def find_initial(source: str, vocabularies: list[str]) -> Initial:
    """Reads the checkpoints of a run or of a Hugging Face folder.

    A run gives each of its domains; a Hugging Face folder gives its vocabulary to a run of one domain, and only
    its blocks to a run of several.

    Raises:
        CheckpointError: if there is neither at ``source``, or it is damaged.
    """
    path = Path(source)
    run = RunFolder(path)
    if run.exists():
        domains = domains_of(path)
        if domains:
            folders = {name: open_run(path, name).folder for name in domains}
            return Initial({name: hub.read_checkpoint(folder) for name, folder in folders.items()}, source)
        path = path / "model"
    if not path.is_dir():
        raise CheckpointError(f'There is no run and no Hugging Face folder at "{source}" (init).')
    name = vocabularies[0] if len(vocabularies) == 1 else ""
    return Initial({name: hub.read_checkpoint(path)}, source)


def encoder_config(model: ModelConfig, initial: Initial | None) -> EncoderConfig:
    """The encoder's shape: the config's, or that of the initial weights with the dropout that the config asks for.

    Raises:
        ConfigError: if the config asks for another shape than the initial weights have.
    """
    if initial is None:
        return model.resolve()
    config = initial.config
    for field in dataclasses.fields(EncoderConfig):
        asked, has = getattr(model, field.name), getattr(config, field.name)
        if asked is not None and asked != has and field.name not in FREE:
            raise ConfigError(
                f"model.{field.name} is {asked}, and the weights that init names have {has}: leave it out, or begin "
                "from random weights (init: null)."
            )
    return dataclasses.replace(
        config,
        dropout=config.dropout if model.dropout is None else model.dropout,
        causal=config.causal if model.causal is None else model.causal,
    )


def build_model(
    config: EncoderConfig,
    tokenizers: Mapping[str, Tokenizer],
    heads: Mapping[str, Collection[str] | Mapping[str, int]],
    seed: int,
    initial: Initial | None,
    replaced: Collection[str] = (),
    features: FeaturesConfig | None = None,
    fresh: Collection[str] = (),
    frequencies: Mapping[str, np.ndarray] | None = None,
    mapped: Mapping[str, int] | None = None,
    parts: InitParts = "all",
) -> tuple[Model, list[str]]:
    """The model with its initial weights.

    Args:
        config: Its shape.
        tokenizers: The tokenizer of each vocabulary.
        heads: The heads of each vocabulary, with the number of outputs of those that need one.
        seed: Of what is newly initialised.
        initial: Where weights come from, if from anywhere.
        replaced: Vocabularies whose words are new though ``initial`` has embeddings for them.
        features: What the heads stand on, if not on the encoder's output.
        fresh: Kinds of heads whose last layer is new though ``initial`` may have one.
        frequencies: How frequent the tokens of each vocabulary are, for biases that begin so; read without ``initial``.
        mapped: Vocabularies whose words are given the embeddings of words of ``initial``, and the seeds of that map.
        parts: What is taken of ``initial``.

    Returns:
        The model, and a line for each thing the user should know about how it was put together.
    """
    sizes = {name: tokenizer.get_vocab_size() for name, tokenizer in tokenizers.items()}
    masks = {name: tokenizer.token_to_id(SPECIAL_TOKENS[4]) for name, tokenizer in tokenizers.items()}
    mask_ids = {name: number for name, number in masks.items() if number is not None}
    if initial is None:
        with Undrawn():
            model = Model(config, sizes, heads, features, mask_ids)
        model.initialise(seed, frequencies=frequencies)
        return model, []
    known = {
        name: dataclasses.replace(checkpoint, config=config)  # dropout and direction may be the run's own
        for name, checkpoint in initial.checkpoints.items()
        if name in sizes
    }
    for name in known.keys() & set(replaced):
        words = special_tokens(load_tokenizer(known[name].folder), tokenizers[name])
        known[name] = _with_words(known[name], sizes[name], config, seed, words)
    for name, map_seed in (mapped or {}).items():
        giver = dataclasses.replace(initial.giver(name), config=config)
        words = initial.mapped(name, tokenizers[name], map_seed)
        known[name] = _with_words(giver, sizes[name], config, seed, words)
    old_sizes = {name: known[name].vocab_size if name in known else sizes[name] for name in sizes}
    with Undrawn():
        model = Model(config, old_sizes, heads, features, mask_ids)
    model.initialise(seed)
    notes = [f"The encoder's shape is that of {initial.source}; model.preset is not read."]
    for number, (name, checkpoint) in enumerate(known.items()):
        report = hub.load_into(model, name, checkpoint, shared=number == 0, fresh=fresh)
        notes += _notes(name, report)
        if sizes[name] > checkpoint.vocab_size:
            hub.resize(model, name, sizes[name], seed)
            notes.append(f"{name}: {sizes[name] - checkpoint.vocab_size:,} tokens added to the vocabulary")
    if not known:
        _load_shared(model, next(iter(initial.checkpoints.values())))
    without = [name for name in sizes if name not in known]
    if without:
        notes.append(f"newly initialised: embeddings and heads of {', '.join(without)}")
    if parts != "all":
        model.initialise(seed, None if parts == "shape" else ["encoder.blocks", "encoder.final_norm", "heads"])
        notes.append(f"all weights{' but the embeddings' * (parts == 'embeddings')} are drawn anew")
    return model, notes


@torch.no_grad()
def _load_shared(model: Model, checkpoint: hub.Checkpoint) -> None:
    parameters = dict(model.named_parameters())
    for name, tensor in checkpoint.tensors.items():
        if hub.is_shared(name):
            parameters[name].copy_(tensor)


def _with_words(
    checkpoint: hub.Checkpoint, size: int, config: EncoderConfig, seed: int, words: Mapping[int, int]
) -> hub.Checkpoint:
    """The checkpoint for another vocabulary.

    Args:
        checkpoint: The weights.
        size: That of the new vocabulary.
        config: The encoder's shape.
        seed: Of new word embeddings.
        words: The old id that each new id takes its embedding from; an id that takes none has a new one.
    """
    new_ids, old_ids = list(words), list(words.values())
    tensors = dict(checkpoint.tensors)
    for name, tensor in checkpoint.tensors.items():
        if len(tensor) == checkpoint.vocab_size and (
            name.startswith("encoder.embeddings.word.") or name.endswith("masked_lm.bias")
        ):
            generator = torch.Generator().manual_seed(seed)
            rows = torch.zeros(size, *tensor.shape[1:])
            if tensor.ndim > 1:
                rows.normal_(0, config.initializer_range, generator=generator)
            rows[new_ids] = tensor[old_ids].to(rows.dtype)
            tensors[name] = rows
    return dataclasses.replace(checkpoint, vocab_size=size, tensors=tensors)


def _notes(name: str, report: hub.LoadReport) -> list[str]:
    notes = [f"{name}: {len(report.loaded)} weights loaded"]
    for what, items in (
        ("newly initialised", report.newly_initialised),
        ("not used", report.left_over),
        ("ignored", report.ignored),
    ):
        if items:
            notes.append(f"{name}: {what}: {', '.join(items)}")
    return notes
