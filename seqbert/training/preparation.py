"""What comes before training: what a config means, then the tokenizers and corpora."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from seqbert import registry
from seqbert.data.augmenting import chosen_augmentations
from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.cache import cache_folder
from seqbert.data.corpus import Corpus
from seqbert.data.fetching import STANDARD_INPUT, in_files
from seqbert.data.vocabulary import extend_vocabulary
from seqbert.domain import Augmentation, Domain
from seqbert.errors import ConfigError
from seqbert.objectives import ObjectiveConfig
from seqbert.objectives.masked_lm import check_unit
from seqbert.training.initialise import Initial, encoder_config, find_initial
from seqbert.training.logging import Console
from seqbert.training.parallel import ALONE, World
from seqbert.training.pretrain_config import PretrainConfig


class Preparation:
    """What a config means before there is any data: plugins, the encoder's shape, objectives; then the corpora."""

    def __init__(self, config: PretrainConfig, console: Console | None = None, world: World = ALONE) -> None:
        self.config, self.world = config, world
        self.console = console or Console()
        self.plugins = {name: registry.load(name)(part.options) for name, part in config.domains.items()}
        self.initial: Initial | None = None
        if config.init is not None:
            self.initial = find_initial(config.init, list(config.domains))
        self.encoder = encoder_config(config.model, self.initial)
        if config.training.max_length > self.encoder.max_position_embeddings:
            raise ConfigError(
                f"training.max_length is {config.training.max_length}, and the encoder has positions for "
                f"{self.encoder.max_position_embeddings} tokens (model.max_position_embeddings): lower the one or "
                "raise the other."
            )
        for name, plugin in self.plugins.items():
            self._check_direction(name)
            masked = self.objective(name).masked_lm
            if masked is not None:
                check_unit(masked, name, plugin.unit)

    def objective(self, name: str) -> ObjectiveConfig:
        """What is learned from a domain; without pairs where its documents are one segment by nature."""
        own = self.config.domains[name].objective
        objective = self.config.objective if own is None else own
        return objective if self.plugins[name].pairs else dataclasses.replace(objective, pair="none")

    def corpora(self) -> dict[str, Corpus]:
        """The corpus of each domain, built or found."""
        return {name: self._corpus(name, plugin) for name, plugin in self.plugins.items()}

    def augmentations(self, corpus: Corpus) -> dict[str, Augmentation]:
        """What the sequences of a corpus are given variants of in training, for the tokenizer that it was made with."""
        from tokenizers import Tokenizer

        plugin = self.plugins[corpus.domain]
        plugin.use(Tokenizer.from_str(corpus.tokenizer_json))
        return chosen_augmentations(
            plugin, self.config.domains[corpus.domain].augment, f"domains.{corpus.domain}.augment"
        )

    def _check_direction(self, name: str) -> None:
        causal = self.objective(name).causal_lm is not None
        if causal != self.encoder.causal:
            raise ConfigError(
                f"The objective of {name} is {'causal_lm' if causal else 'masked_lm'}, and model.causal is "
                f"{str(self.encoder.causal).lower()}: a masked LM sees both sides (model.causal: false), a causal LM "
                "only what stands before (model.causal: true)."
            )

    def _corpus(self, name: str, plugin: Domain) -> Corpus:
        part, run = self.config.domains[name], self.config.run
        given, extend = self._given_tokenizer(name), part.vocabulary == "extend"
        request = BuildRequest(
            plugin,
            part.data,
            part.validation,
            part.vocab_size,
            given,
            extend_vocabulary if extend and given is not None else None,
            part.strict,
            part.split,
        )
        return build_corpus(request, cache_folder(run.corpus_dir), run.workers, self.console.preparing, self.world)

    def _given_tokenizer(self, name: str) -> str | None:
        part = self.config.domains[name]
        if part.tokenizer is not None:
            given = read_tokenizer(Path(part.tokenizer), f"domains.{name}.tokenizer")
            keeps = self.initial is not None and part.vocabulary != "replace"
            check_keeps(self.initial.tokenizer(name) if self.initial and keeps else None, given, f"domains.{name}")
            return given
        if self.initial is None or part.vocabulary == "replace":
            return None
        return self.initial.tokenizer(name)


def with_piped_data(config: PretrainConfig, world: World) -> PretrainConfig:
    """The config, in which data that is piped in is a file, so that the run can be repeated and resumed."""
    entries = [entry for part in config.domains.values() for entry in part.data]
    if STANDARD_INPUT not in entries:
        return config
    cache = cache_folder(config.run.corpus_dir)
    kept = json.loads(world.tell(json.dumps(in_files(entries, cache)) if world.leads else ""))
    domains = {}
    for name, part in config.domains.items():
        domains[name] = dataclasses.replace(part, data=kept[: len(part.data)])
        kept = kept[len(part.data) :]
    return dataclasses.replace(config, domains=domains)


def read_tokenizer(path: Path, key: str) -> str:
    """The tokenizer that a config names, as JSON: a tokenizer.json, or the folder that holds it.

    Raises:
        ConfigError: It is none; the message names ``key``.
    """
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return str(Tokenizer.from_file(str(file)).to_str())
    except Exception as error:  # the library raises plain Exception
        raise ConfigError(f'{key}: "{file}" is no tokenizer: {error}.') from error


def check_keeps(own: str | None, given: str, section: str) -> None:
    """Makes sure that a given tokenizer is the one that kept embeddings were trained with.

    Args:
        own: The tokenizer of the embeddings, as JSON; None where none are kept.
        given: The tokenizer that the config names, as JSON.
        section: The config's section that names it.

    Raises:
        ConfigError: It is another one.
    """
    from tokenizers import Tokenizer

    if own is not None and Tokenizer.from_str(own).get_vocab() != Tokenizer.from_str(given).get_vocab():
        raise ConfigError(
            f"{section}.tokenizer is another than the one that the embeddings of init were trained with: "
            f"leave it out, or set {section}.vocabulary to replace, which makes new embeddings."
        )
