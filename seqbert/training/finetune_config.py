"""The config tree of ``seqbert finetune``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.table import TableOptions
from seqbert.data.ties import SplitConfig
from seqbert.errors import ConfigError
from seqbert.models.adaptation import LoRAConfig
from seqbert.models.config import ModelConfig
from seqbert.models.lstm import FeaturesConfig
from seqbert.tasks import TaskConfig
from seqbert.tasks.classification import ClassificationConfig
from seqbert.training.device import RunConfig
from seqbert.training.optimizers import AdamWConfig, OptimizerConfig
from seqbert.training.run_folder import RunFolder, domains_of
from seqbert.training.schedules import LinearConfig, ScheduleConfig


@dataclasses.dataclass
class FinetuneDomainConfig:
    """The domain of the records."""

    name: str | None = None
    """The domain; null: that of init, where init is a run of one domain."""
    options: Any = None
    """The plugin's own options; null: those of init, else its defaults."""
    strict: bool = False
    """Whether each record that is skipped, cut, repaired or mapped is an error, not a count in the data report."""
    augment: list[str] = dataclasses.field(default_factory=list)
    """The plugin's augmentations, such as reverse_complement, of which each training record is given a variant that is
    drawn anew in each epoch; labels of words and answers move with their tokens."""
    average: list[str] = dataclasses.field(default_factory=list)
    """Augmentations over all of whose variants outputs are averaged in validation, evaluation and prediction."""
    vocab_size: int | None = None
    """Most entries of a new vocabulary; null: the domain's default. Read only where there is a new one."""
    tokenizer: str | None = None
    """A tokenizer.json to use, or the folder that holds it; null: that of init, else a new one."""
    vocabulary: Literal["keep", "replace", "map"] = "keep"
    """What becomes of the vocabulary of init: kept; replaced by a new one with new embeddings; or replaced by a new one
    each of whose tokens is given the embedding of a word of the old one (Kao and Lee 2021)."""
    map_seed: int | None = None
    """Keys which word each token is given; null: the run's seed."""

    @classmethod
    def field_types(cls, key: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The options are those of the plugin that is named."""
        name = data.get("name")
        return {} if name is None else {"options": registry.load(name).Options | None}


@dataclasses.dataclass
class LabelledOptions(TableOptions):
    """How labelled records that are not trained on are read."""

    unseen_labels: Literal["error", "skip"] = "error"
    """What becomes of validation and test records whose label training has not seen: an error, or left out and
    counted."""


@dataclasses.dataclass
class FinetuneDataConfig(LabelledOptions):
    """The labelled records, and how they are read."""

    train: list[str] = dataclasses.field(default_factory=list)
    """Files, folders or globs; "sample" for the plugin's own table of the task, sample:NAME for another one."""
    validation: float | str | list[str] = 0.1
    """Share of the training records, stratified by label, equal records on one side; or files. 0: none."""
    test: list[str] | None = None
    """Files of records that are scored once, after training; null: none."""
    folder: str | None = None
    """A folder that is put before the names under train, validation and test."""
    train_size: int | None = None
    """Train on so many of the training records, always the same ones; those of a smaller number are among them."""
    group: str | None = None
    """Metadata by which records stay on one side of a validation share: the article of a question, the family of a
    protein. "group" is what columns.group names."""
    split: SplitConfig = dataclasses.field(default_factory=SplitConfig)
    """What stays on one side of a validation share beside equal records and data.group; how many records of validation
    and test files are of the same groups as training records is reported."""
    long: Literal["window", "cut", "error"] = "window"
    """What becomes of records that are longer than training.max_length: overlapping windows, whose outputs are
    brought together; cut at the end, and counted; or an error."""
    stride: int | None = None
    """Tokens from the start of one window to that of the next; null: half a window."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.validation, float | int) and not 0 <= self.validation < 1:
            raise ConfigError(f"validation is {self.validation}; a share is at least 0 and below 1.")
        for name in ("train_size", "stride"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, and it must be at least 1.")


@dataclasses.dataclass
class FreezeConfig:
    """What of the encoder is not trained."""

    embeddings: bool = False
    """Whether the embeddings stay as they are."""
    layers: int = 0
    """Blocks that stay as they are, counted from the embeddings."""

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ConfigError(f"layers is {self.layers}, and it cannot be below 0.")


@dataclasses.dataclass
class FinetuneTrainingConfig:
    """How long and how fast the model learns."""

    epochs: float | None = None
    """Times that every training record is seen; with minutes the most there may be. Null: 3, or with minutes as many as
    they allow."""
    minutes: float | None = None
    """How long a seed trains by the clock, validations and checkpoints included: the number of updates is planned from
    the time that they take, so that the schedule ends with the time. Null: as long as the epochs take."""
    batch_size: int = 32
    """Records of one update; a long one counts as often as it has windows."""
    learning_rate: float = 5e-5
    """Highest learning rate. Devlin et al. 2019, appendix A.3: 2e-5 to 5e-5 for pretrained weights."""
    max_length: int = 128
    """Most tokens of a sequence, special tokens included."""
    seeds: int = 1
    """Runs with seeds of their own, from ``seed`` on; the best on validation data becomes the run's model."""
    evaluate_every: Literal["epoch"] | int = "epoch"
    """Steps between two validations."""
    early_stopping: int | None = None
    """Validations without a better score after which training ends; null: never."""
    clip_norm: float | None = 1.0
    """Longest gradient; null: any."""
    layer_decay: float = 1.0
    """Factor on the learning rate from each block to the one below it (Clark et al. 2020, appendix B)."""
    freeze: FreezeConfig = dataclasses.field(default_factory=FreezeConfig)
    """What of the encoder is not trained."""
    reinitialise: int = 0
    """Topmost blocks, with the pooler, whose weights are drawn anew (Zhang et al. 2021, section 5)."""
    lora: LoRAConfig | None = None
    """Train low-rank changes of weight matrices instead of the encoder (Hu et al. 2022); null: do not."""
    optimizer: OptimizerConfig = dataclasses.field(default_factory=lambda: AdamWConfig(beta2=0.999))
    """The optimizer. bert_adam is the original one, without bias correction: on little data some of its runs fail
    (Mosbach et al. 2021; Zhang et al. 2021)."""
    schedule: ScheduleConfig = dataclasses.field(default_factory=lambda: LinearConfig(warmup=0.1))
    """How the learning rate goes over the steps."""

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise ConfigError(f"max_length is {self.max_length}, and it must be at least 8.")
        for name in ("batch_size", "seeds", "early_stopping", "evaluate_every"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{name} is {value}, and it must be at least 1.")
        if self.minutes is None and self.epochs is None:
            self.epochs = 3
        for name in ("epochs", "minutes", "learning_rate", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}, and it must be above 0.")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay is {self.layer_decay}; it is above 0 and at most 1.")
        if self.reinitialise < 0:
            raise ConfigError(f"reinitialise is {self.reinitialise}, and it cannot be below 0.")


@dataclasses.dataclass
class FinetuneConfig:
    """``seqbert finetune``: what is learned, and under ``run`` how it is carried out."""

    output: str
    """The run's folder."""
    domain: FinetuneDomainConfig = dataclasses.field(default_factory=FinetuneDomainConfig)
    """The domain of the records."""
    seed: int = 0
    """Keys new weights, the order of the records and dropout."""
    init: str | None = None
    """A run or a Hugging Face folder to begin from; null: random weights."""
    init_parts: Literal["all", "embeddings", "shape"] = "all"
    """What is taken of init: all weights; the embeddings, while the blocks are drawn anew; or none but its shape."""
    task: TaskConfig = dataclasses.field(default_factory=ClassificationConfig)
    """What is predicted."""
    data: FinetuneDataConfig = dataclasses.field(default_factory=FinetuneDataConfig)
    """The labelled records."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    """The encoder, where init is null; dropout is read in any case."""
    features: FeaturesConfig | None = None
    """Train a BiLSTM on the layers of an encoder: of a frozen one, instead of it (Devlin et al. 2019, section 5.3), or
    together with it."""
    training: FinetuneTrainingConfig = dataclasses.field(default_factory=FinetuneTrainingConfig)
    """How long and how fast."""
    run: RunConfig = dataclasses.field(default_factory=lambda: RunConfig(workers=0, checkpoint_every=500, keep=1))
    """How the run is carried out; nothing here changes the outcome beyond rounding. The records lie in memory, and a
    batch is made in a millisecond: workers would only take cores from the model."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}, and it must be at least 0 and below 2^63.")
        if self.init is None and (self.init_parts != "all" or self.domain.vocabulary == "map"):
            key = "init_parts" if self.init_parts != "all" else "domain.vocabulary"
            raise ConfigError(f"{key} says what is taken of init, and init is null: name weights, or leave it out.")
        if self.training.reinitialise and self.training.lora is not None:
            raise ConfigError(
                "training.reinitialise: with training.lora the blocks that are drawn anew would stay random; set "
                "one of them to null or 0."
            )
        if self.features is not None and self.training.lora is not None:
            raise ConfigError(
                "features and training.lora: under features the encoder is frozen or trained whole; set one to null."
            )


def load_finetune_config(
    source: str | Path | Mapping[str, Any] | FinetuneConfig, overrides: list[str] | None = None
) -> FinetuneConfig:
    """Reads and checks a fine-tuning config, and fills in what it takes from ``init``: domain and options.

    Raises:
        ConfigError: A key or a value cannot be used, or the domain's options are others than those of ``init``.
    """
    config = config_tree.load(FinetuneConfig, source, overrides or [])
    inherited: dict[str, Mapping[str, Any] | None] = {}
    if config.init is not None and RunFolder(Path(config.init)).exists():
        inherited = domains_of(config.init)
    name = config.domain.name
    if name is None:
        if len(inherited) != 1:
            which = f"init has several: {', '.join(inherited)}" if inherited else "init names none"
            raise ConfigError(f"domain.name is not given, and {which}. Name one: {', '.join(registry.plugins())}.")
        name = next(iter(inherited))
    options_type = registry.load(name).Options
    options = config.domain.options
    if isinstance(options, Mapping):  # the domain's name was not known when the config was read
        options = config_tree.load(options_type, dict(options))
    if name in inherited:
        kept: Any = config_tree.load(options_type, dict(inherited[name] or {}))
        if options is not None and config.domain.vocabulary == "keep" and config_tree.difference(kept, options):
            raise ConfigError(
                "domain.options differ from those that the weights of init were trained with: "
                f"{'; '.join(config_tree.difference(kept, options))}. Leave them out."
            )
        options = kept if options is None else options
    elif options is None:
        options = options_type()
    domain = dataclasses.replace(config.domain, name=name, options=options)
    return dataclasses.replace(config, domain=domain)
