"""``seqbert describe`` for whatever a user names: a preset, a config, or a run."""

from __future__ import annotations

from pathlib import Path

from seqbert import registry
from seqbert.analysis.parameters import Description
from seqbert.analysis.parameters import describe as count
from seqbert.domain import SPECIAL_TOKENS, Domain
from seqbert.errors import ConfigError, SeqbertError
from seqbert.models import hub
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.training.finetune_config import load_finetune_config
from seqbert.training.initialise import encoder_config, find_initial
from seqbert.training.preparation import Preparation
from seqbert.training.pretrain_config import load_config
from seqbert.training.run_folder import RunFolder, domains_of, open_run

PUBLISHED_VOCABULARY = 30522
"""Entries of the vocabulary of bert-base-uncased, for what has none of its own."""


def describe(what: str | EncoderConfig, vocab_size: int | None = None, length: int = 128) -> dict[str, Description]:
    """Descriptions by name: of the preset, or of each domain of a config or a run.

    Args:
        what: A preset, a config's path or name, a run's folder, or an encoder's shape.
        vocab_size: Entries of the vocabulary; None: the run's or the domain's own, else that of the published BERT.
        length: Tokens of a sequence, for the operations.

    Raises:
        ConfigError: if ``what`` is none of these.
    """
    if isinstance(what, EncoderConfig):
        return {"encoder": _of_shape(what, vocab_size, length)}
    if what in PRESETS:
        return {what: _of_shape(PRESETS[what], vocab_size, length)}
    if RunFolder(Path(what)).exists():
        return {name: _of_run(what, name, vocab_size, length) for name in domains_of(what) or ["imported"]}
    if (finetuning := _finetuning(what, vocab_size, length)) is not None:
        return finetuning
    try:
        config = load_config(what, ["--output", "unused"])
    except ConfigError as error:
        if Path(what).exists():
            raise
        raise ConfigError(f"{error} Presets are: {', '.join(PRESETS)}.") from error
    preparation = Preparation(config)
    return dict(_of_config(preparation, name, vocab_size, length) for name in config.domains)


def _of_shape(config: EncoderConfig, vocab_size: int | None, length: int) -> Description:
    """The description with the heads of the published pretraining: where there are segments, that of pairs too."""
    heads = ("masked_lm", "pair") if config.type_vocab_size else ("masked_lm",)
    return count(config, vocab_size or PUBLISHED_VOCABULARY, heads, length=length)


def _finetuning(what: str, vocab_size: int | None, length: int) -> dict[str, Description] | None:
    """The encoder of a fine-tuning config; None where ``what`` is none."""
    try:
        config = load_finetune_config(what, ["--output", "unused"])
    except SeqbertError:
        return None
    name = str(config.domain.name)
    initial = None if config.init is None else find_initial(config.init, [name])
    encoder = encoder_config(config.model, initial)
    if initial is not None and name in initial.checkpoints and config.domain.vocabulary == "keep":
        size, assumed = vocab_size or initial.checkpoints[name].vocab_size, ""
    else:
        plugin = registry.load(name)(config.domain.options)
        size, assumed = _vocabulary(plugin, vocab_size or config.domain.vocab_size)
    title = f"{name}{assumed}, without the head, which depends on the labels"
    return {title: count(encoder, size, (), length=length)}


def _of_run(run: str, domain: str | None, vocab_size: int | None, length: int) -> Description:
    checkpoint = hub.read_checkpoint(open_run(run, domain).folder)
    return count(checkpoint.config, vocab_size or checkpoint.vocab_size, checkpoint.heads, length=length)


def _of_config(preparation: Preparation, name: str, vocab_size: int | None, length: int) -> tuple[str, Description]:
    """The description of a domain, under a name that says where the size of the vocabulary is from."""
    section = preparation.config.domains[name]
    size, assumed = _vocabulary(preparation.plugins[name], vocab_size or section.vocab_size)
    heads = preparation.objective(name).heads
    return name + assumed, count(preparation.encoder, size, heads, length=length)


def _vocabulary(plugin: Domain, asked: int | None) -> tuple[int, str]:
    """Entries of a new vocabulary, and a word on where the number is from if it is not known yet."""
    size = asked or fixed_alphabet(plugin)
    if size is not None:
        return size, ""
    return PUBLISHED_VOCABULARY, f" (vocabulary of {PUBLISHED_VOCABULARY:,} assumed; it is trained on the data)"


def fixed_alphabet(plugin: Domain) -> int | None:
    """Entries of the vocabulary of a domain that has the same one for all data; None where it is trained."""
    try:
        size = plugin.tokenizer(iter(()), None).get_vocab_size()
    except SeqbertError:  # nothing to train on
        return None
    return size if size > len(SPECIAL_TOKENS) else None
