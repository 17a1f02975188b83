"""The config tree of ``seqbert pretrain`` and ``seqbert prepare``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.ties import SplitConfig
from seqbert.errors import ConfigError
from seqbert.models.config import ModelConfig
from seqbert.objectives import ObjectiveConfig
from seqbert.training.device import RunConfig
from seqbert.training.optimizers import AdamWConfig, MuonConfig
from seqbert.training.schedules import LinearConfig, ScheduleConfig
from seqbert.training.warmups import BatchWarmupConfig, LengthWarmupConfig


@dataclasses.dataclass
class DomainConfig:
    """One domain of a run."""

    options: Any = None
    """The plugin's own options; null: its defaults."""
    data: list[str] = dataclasses.field(default_factory=list)
    """Files, folders, globs, addresses such as s3://bucket/key, "-" for standard input, or "sample" for the data that
    comes with the plugin."""
    strict: bool = False
    """Whether each record that is skipped, cut, repaired or mapped is an error, not a count in the data report."""
    augment: list[str] = dataclasses.field(default_factory=list)
    """The plugin's augmentations to draw from in training, such as reverse_complement; one variant a sequence."""
    validation: float | str = 0.05
    """Share of the tokens that is held out, by whole documents where it can be; or a file, folder or glob."""
    split: SplitConfig = dataclasses.field(default_factory=SplitConfig)
    """What stays on one side of a validation share, beside equal documents."""
    vocab_size: int | None = None
    """Most entries of a new vocabulary; null: the domain's default."""
    tokenizer: str | None = None
    """A tokenizer.json to use, or the folder that holds it; null: a new one, or that of init."""
    vocabulary: Literal["keep", "extend", "replace"] = "keep"
    """What becomes of the vocabulary of init: kept, extended by what the data adds, or replaced by a new one."""
    weight: float = 1.0
    """Share of each step's tokens, and of the loss, relative to the other domains' weights."""
    objective: ObjectiveConfig | None = None
    """What is learned from this domain, if it differs from the run's objective."""

    def __post_init__(self) -> None:
        if not isinstance(self.validation, str) and not 0 <= self.validation < 1:
            raise ConfigError(f"validation is {self.validation}; a share is at least 0 and below 1.")
        if not self.weight > 0:
            raise ConfigError(f"weight is {self.weight}, and it must be above 0.")

    @classmethod
    def field_types(cls, key: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The options are those of the plugin that the section is named after."""
        return {"options": registry.load(key).Options}


@dataclasses.dataclass
class PretrainTrainingConfig:
    """How long and how fast the model learns."""

    max_length: int = 128
    """Most tokens of a sequence, special tokens included."""
    tokens_per_step: int = 32768
    """Tokens of one update, over all domains."""
    batch_warmup: BatchWarmupConfig | None = None
    """Fewer tokens in the first updates, or null: all have tokens_per_step."""
    length_warmup: LengthWarmupConfig | None = None
    """Shorter sequences in the first updates, or null: all have up to max_length tokens."""
    steps: int | None = None
    """Updates; with minutes the most there may be. Null: 1000, or with minutes as many as they allow."""
    minutes: float | None = None
    """How long training takes by the clock, validations and checkpoints included: the number of updates is planned from
    the time that they take, so that the schedule ends with the time. Null: as long as the steps take."""
    evaluate_every: int = 100
    """Steps between two validations; there is one before the first step and one after the last too."""
    validation_tokens: int = 131072
    """Most held-out tokens of a domain that a validation looks at, spread evenly over what is held out."""
    learning_rate: float = 1e-3
    """Highest learning rate."""
    clip_norm: float | None = 1.0
    """Longest gradient; null: any."""
    optimizer: AdamWConfig | MuonConfig = dataclasses.field(default_factory=AdamWConfig)
    """The optimizer."""
    schedule: ScheduleConfig = dataclasses.field(default_factory=LinearConfig)
    """How the learning rate goes over the steps."""

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise ConfigError(f"max_length is {self.max_length}, and it must be at least 8.")
        if self.tokens_per_step < self.max_length:
            raise ConfigError(
                f"tokens_per_step ({self.tokens_per_step}) must hold at least one sequence of max_length "
                f"({self.max_length}) tokens."
            )
        if self.minutes is None and self.steps is None:
            self.steps = 1000
        for name in ("steps", "evaluate_every", "validation_tokens"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, and it must be at least 1.")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm is {self.clip_norm}, and it must be above 0, or null.")
        for name in ("learning_rate", "minutes"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, and it must be above 0.")


@dataclasses.dataclass
class PretrainConfig:
    """``seqbert pretrain``: what is learned, and under ``run`` how it is carried out."""

    output: str
    """The run's folder."""
    domains: dict[str, DomainConfig]
    """The domains by name; several of them share the encoder's blocks."""
    seed: int = 0
    """Keys the initial weights, the order of the data, masks, pairs and dropout."""
    init: str | None = None
    """A run or a Hugging Face folder to begin from; null: random weights."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    """The encoder."""
    objective: ObjectiveConfig = dataclasses.field(default_factory=ObjectiveConfig)
    """What is learned."""
    training: PretrainTrainingConfig = dataclasses.field(default_factory=PretrainTrainingConfig)
    """How long and how fast."""
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    """How the run is carried out; nothing here changes the outcome beyond rounding."""

    def __post_init__(self) -> None:
        if not self.domains:
            raise ConfigError("domains is empty, and a run needs at least one.")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}, and it must be at least 0 and below 2^63.")
        least = self.training.max_length * len(self.domains)
        if self.training.tokens_per_step < least:
            raise ConfigError(
                f"training.tokens_per_step is {self.training.tokens_per_step}, and every step holds every domain: "
                f"{len(self.domains)} domains with sequences of {self.training.max_length} tokens need {least}."
            )

    @property
    def shares(self) -> dict[str, float]:
        """Share of each domain in a step's tokens and in the loss; they sum to 1."""
        total = sum(domain.weight for domain in self.domains.values())
        return {name: domain.weight / total for name, domain in self.domains.items()}


def load_config(
    source: str | Path | Mapping[str, Any] | PretrainConfig, overrides: list[str] | None = None
) -> PretrainConfig:
    """Reads and checks a pretraining config: a path, the name of a shipped one, a mapping, or an instance."""
    return config_tree.load(PretrainConfig, source, overrides or [])
