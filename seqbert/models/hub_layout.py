"""How an architecture is spelled in Hugging Face's folders: keys of config.json, names of weights, classes of models.

A layout translates both ways. It is data as far as it can be: each published architecture has a module of its own that
fills it in.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from seqbert.errors import CheckpointError, ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.heads import TASKS

_OLD_NORM = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")
"""What the weights of a LayerNorm are called in Google's files, and in those of some versions of ``transformers``."""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")

HARMLESS_KEYS = frozenset(
    (
        "model_type",
        "architectures",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "sep_token_id",
        "cls_token_id",
        "mask_token_id",
        "tie_word_embeddings",
        "use_cache",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "_name_or_path",
        "gradient_checkpointing",
        "classifier_dropout",
        "num_labels",
        "_num_labels",
        "id2label",
        "label2id",
        "output_past",
        "finetuning_task",
        "problem_type",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "cross_attention_hidden_size",
        "chunk_size_feed_forward",
        "is_encoder_decoder",
    )
)
"""Keys of any config.json that do not bear on hidden states and are passed over without a note."""


SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
"""Keys of any config.json without which there is no shape."""

SIZE_KEYS = {key: key for key in (*SIZES, "max_position_embeddings")}
"""Keys that every architecture spells as we do the field."""


@dataclasses.dataclass(slots=True)
class Spare:
    """Tensors of a file that are no weights of ours, by their standard names.

    Attributes:
        twins: The copies that a tied decoder has.
        kept: What is written again as it was read.
        computed: What follows from config.json, such as the frequencies of rotary positions.
    """

    twins: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    kept: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    computed: dict[str, Tensor] = dataclasses.field(default_factory=dict)


class Layout(ABC):
    """One architecture's folders.

    Class attributes:
        model_type: Its name in config.json.
        title: Its name in messages.
        prefix: What the encoder's names begin with in a model that has heads.
        roots: What they begin with where the encoder stands alone, without the prefix.
        base: The class of the encoder alone.
        names: Our modules and theirs; ``*`` is the vocabulary and ``#`` the number of a block. Where several of ours
            have one name, theirs holds them one above the other. Several heads may have the same name, and the class
            says which of them it is.
        classes: The class for each set of heads.
        pretraining: The heads of pretraining.
        twins: The names of a tied decoder's weight and, where it has a copy, bias.
        keys: Keys of config.json that become fields of :class:`EncoderConfig`.
        required: Keys that must be there, beside vocab_size.
        served: Keys that change what the weights mean, and the values that can be served.
        harmless: Keys that are passed over without a note, beside :data:`HARMLESS_KEYS` and those of dropout.
        dropouts: Keys of the rates of dropout, of which the first is taken.
        defaults: What it takes where config.json is silent, and :class:`EncoderConfig` would take something else.
        fixed: What the architecture does not leave to config.json.
        token_ids: Keys of config.json that hold the ids of special tokens.
        inputs: What the model takes from a tokenizer.
        special_tokens: How its vocabularies spell the special tokens, where otherwise than ours do.
        vocabulary_file: Whether its own tokenizer reads a list of tokens, which is written too.
    """

    model_type: ClassVar[str]
    title: ClassVar[str]
    prefix: ClassVar[str]
    roots: ClassVar[tuple[str, ...]]
    base: ClassVar[str]
    names: ClassVar[Mapping[str, str]]
    classes: ClassVar[Mapping[tuple[str, ...], str]]
    pretraining: ClassVar[tuple[str, ...]] = ("masked_lm",)
    twins: ClassVar[tuple[str, ...]]
    keys: ClassVar[Mapping[str, str]]
    required: ClassVar[tuple[str, ...]] = SIZES
    served: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    harmless: ClassVar[frozenset[str]] = frozenset()
    dropouts: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}
    token_ids: ClassVar[Mapping[str, str]] = {
        "pad_token_id": "[PAD]",
        "cls_token_id": "[CLS]",
        "sep_token_id": "[SEP]",
        "mask_token_id": "[MASK]",
    }
    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    special_tokens: ClassVar[Mapping[str, str]] = {}
    vocabulary_file: ClassVar[bool] = False

    # Names

    def standard_name(self, name: str) -> str:
        """A tensor's name as today's ``transformers`` spells it within a model that has heads."""
        name = f"{self.prefix}{name}" if name.startswith(self.roots) else name
        return _OLD_NORM.sub(lambda old: "weight" if old[0] == "gamma" else "bias", name)

    def kinds(self, architecture: str, names: Collection[str]) -> tuple[str, ...]:
        """The heads that the weights of a file may be of.

        Without its classifier a class for a task has what pretraining left of its head.
        """
        tasks = {name: kinds[0] for kinds, name in self.classes.items() if kinds and kinds[0] in TASKS}
        classifiers = {f"{self.names[f'heads.*.{kind}.classifier']}.weight" for kind in tasks.values()}
        task = tasks.get(architecture)
        return self.pretraining if task is None or classifiers.isdisjoint(names) else (task,)

    def ours(self, kinds: Collection[str]) -> dict[str, list[str]]:
        """Our modules by theirs, with the heads of these kinds."""
        ours: dict[str, list[str]] = {}
        for our, their in self.names.items():
            if not our.startswith("heads.") or our.split(".")[2] in kinds:
                ours.setdefault(their, []).append(our)
        return ours

    def our_names(self, standard: str, ours: Mapping[str, list[str]]) -> list[str]:
        """Our parameters that a tensor of theirs holds, one above the other; none where it is of no part of ours."""
        module, _, parameter = standard.rpartition(".")
        number = _NUMBER.search(module)
        found = ours.get(_NUMBER.sub("#", module, count=1), ())
        if parameter not in ("weight", "bias"):
            return []
        return [f"{our.replace('#', number[0]) if number else our}.{parameter}" for our in found]

    def their_name(self, general: str) -> str:
        """A parameter's name in their files; those of features have none and keep ours."""
        module, _, parameter = general.rpartition(".")
        number = _NUMBER.search(module)
        theirs = self.names.get(_NUMBER.sub("#", module, count=1), module)
        return f"{theirs.replace('#', number[0]) if number else theirs}.{parameter}"

    def passed_over(self, standard: str) -> str | None:
        """Why a tensor carries nothing; None where it may."""
        if standard.endswith("embeddings.position_ids"):
            return "the numbers 0, 1, 2, ... that old versions saved"
        return None

    def is_kept(self, standard: str) -> bool:
        """Whether a tensor is of a part that we have no use for, and that their class cannot do without."""
        return False

    def is_computed(self, standard: str) -> bool:
        """Whether a tensor follows from config.json; :meth:`settle` checks that it does."""
        return False

    # Reading

    def read_config(self, path: Path, settings: dict[str, Any], ignored: list[str]) -> tuple[EncoderConfig, int]:
        """The shape and the size of the vocabulary by config.json; what is passed over is added to ``ignored``.

        Raises:
            CheckpointError: A key is missing, or its value cannot be served.
        """
        for key, served in self.served.items():
            if settings.get(key) not in served:
                raise CheckpointError(f"{path}: {key} is {settings.get(key)!r}, which is not supported")
        missing = [key for key in ("vocab_size", *self.required) if key not in settings]
        if missing:
            raise CheckpointError(f"{path} lacks {', '.join(missing)}: it does not describe a {self.title} encoder")
        vocab_size = settings["vocab_size"]
        if isinstance(vocab_size, bool) or not isinstance(vocab_size, int) or vocab_size < 1:
            raise CheckpointError(f"{path}: vocab_size is {vocab_size!r}; it must be a whole number of at least 1")
        try:
            config = EncoderConfig(**{**self.defaults, **self.fixed, **self.fields(path, settings)})
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from error
        for key in self.dropouts[1:]:
            rate = settings.get(key)
            if rate not in (None, config.dropout):
                ignored.append(
                    f"config.json: {key} {rate}; there is one dropout, and it is {self.dropouts[0]} {config.dropout}"
                )
        known = {*self.keys, *self.served, *HARMLESS_KEYS, *self.harmless, *self.dropouts, "vocab_size"}
        unread = settings.keys() - known
        if unread:
            listed = ", ".join(sorted(unread))
            ignored.append(f"config.json: {listed}; config.json is read as data, for known keys only")
        return config, vocab_size

    def fields(self, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
        """What config.json says about the fields of :class:`EncoderConfig`, where it says something.

        Raises:
            CheckpointError: It says something that cannot be served.
        """
        return {field: settings[key] for key, field in self.keys.items() if key in settings}

    def settle(self, folder: Path, config: EncoderConfig, computed: Mapping[str, Tensor]) -> EncoderConfig:
        """The shape, as the tensors make of it that follow from it.

        Raises:
            CheckpointError: They do not follow from it.
        """
        return config

    def left_out(self, settings: dict[str, Any], kinds: Collection[str]) -> tuple[Collection[str], str | None]:
        """Kinds of heads that compute something else than ours by config.json, and a note that says what."""
        return (), None

    # Writing

    def obstacles(self, config: EncoderConfig, heads: Collection[str]) -> list[str]:
        """What of a shape and its kinds of heads the architecture cannot hold; empty where it holds all."""
        found = [
            f"{field}: {_spelled(getattr(config, field))}"
            for field, value in self.fixed.items()
            if field != "task_head" and getattr(config, field) != value
        ]
        has_task = any(kind in TASKS for kind in heads)
        if has_task and config.task_head != self.fixed.get("task_head", "bert"):
            found.append(f"task_head: {config.task_head}")
        if tuple(heads) not in self.classes:
            found.append(f"the heads {' and '.join(heads)}" if len(heads) > 1 else f"the head {next(iter(heads))}")
        return found

    def architecture(self, config: EncoderConfig, heads: Sequence[str]) -> str:
        """The class for a shape and its heads."""
        return self.classes[tuple(heads)]

    def settings(self, config: EncoderConfig) -> dict[str, Any]:
        """What config.json says about a shape."""
        return {
            **{key: getattr(config, field) for key, field in self.keys.items()},
            **{key: config.dropout for key in self.dropouts},
        }

    def required_tensors(self, config: EncoderConfig, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors that are no weights of ours and that their class cannot do without, by their standard names.

        Args:
            config: The shape.
            kept: Those that were read (:meth:`is_kept`).
        """
        return {}


def local_blocks(config: EncoderConfig) -> list[bool]:
    """For each block whether it sees a window alone."""
    return [config.is_local(block) for block in range(config.num_hidden_layers)]


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
