"""``seqbert pretrain`` and ``seqbert prepare``: from a config to a trained encoder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqbert import config as config_tree
from seqbert import registry
from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.corpus import TRAIN, VALIDATION, Corpus
from seqbert.data.plan import Plan, Source
from seqbert.data.vocabulary import extend_vocabulary
from seqbert.domain import Domain
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.models import hub
from seqbert.models.config import ModelConfig
from seqbert.models.model import Model
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.objectives.masked_lm import check_unit
from seqbert.training import checkpoint
from seqbert.training.device import Device, RunConfig
from seqbert.training.evaluation import Metrics, evaluate, reported
from seqbert.training.initialise import Initial, build_model, encoder_config, find_initial
from seqbert.training.loader import load_steps
from seqbert.training.logging import Console, MetricsLog
from seqbert.training.loop import Loop, LoopSettings
from seqbert.training.optimizers import AdamWConfig, build_optimizer
from seqbert.training.run_folder import RunFolder, replace_folder, write_json
from seqbert.training.schedules import LinearConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VALIDATION_SEED = 0
"""Keys the masks and pairs of validation, whatever the run's seed, so that runs can be compared."""


EXAMPLE_TOKENS = 40
"""Tokens of the stretch that shows what a model learned."""


@dataclasses.dataclass
class DomainConfig:
    """One domain of a run."""

    options: Any = None
    """The plugin's own options; null: its defaults."""
    data: list[str] = dataclasses.field(default_factory=list)
    """Files, folders, globs, or "sample" for the data that comes with the plugin."""
    validation: float | str = 0.05
    """Share of the tokens that is held out, by whole documents where it can be; or a file, folder or glob."""
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
    steps: int = 1000
    """Updates."""
    evaluate_every: int = 100
    """Steps between two validations; there is one before the first step and one after the last too."""
    validation_tokens: int = 131072
    """Most held-out tokens of a domain that a validation looks at, spread evenly over what is held out."""
    learning_rate: float = 1e-3
    """Highest learning rate."""
    clip_norm: float | None = 1.0
    """Longest gradient; null: any."""
    optimizer: AdamWConfig = dataclasses.field(default_factory=AdamWConfig)
    """The optimizer."""
    schedule: LinearConfig = dataclasses.field(default_factory=LinearConfig)
    """How the learning rate goes over the steps."""

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise ConfigError(f"max_length is {self.max_length}, and it must be at least 8.")
        if self.tokens_per_step < self.max_length:
            raise ConfigError(
                f"tokens_per_step ({self.tokens_per_step}) must hold at least one sequence of max_length "
                f"({self.max_length}) tokens."
            )
        for name in ("steps", "evaluate_every", "validation_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, and it must be at least 1.")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm is {self.clip_norm}, and it must be above 0, or null.")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}, and it must be above 0.")


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


@dataclasses.dataclass(frozen=True, slots=True)
class DomainResult:
    """What a run did for one domain.

    Attributes:
        before: Validation metrics before the first step.
        after: Validation metrics after the last step.
        symbol: What bits are counted over.
        example: Token ids of a stretch, held out where anything is, that shows what a masked LM does.
        place: Place in it of a token to mask.
    """

    before: Metrics
    after: Metrics
    symbol: str
    example: list[int]
    place: int


@dataclasses.dataclass(frozen=True, slots=True)
class PretrainResult:
    """Where a run lies and what it reached.

    Attributes:
        folder: The run's folder.
        domains: By domain, the validation metrics before and after.
        best_step: The step whose weights are in ``model``.
        notes: What the user was told about data, weights and objectives.
    """

    folder: Path
    domains: dict[str, DomainResult]
    best_step: int | None
    notes: list[str]


def load_config(
    source: str | Path | Mapping[str, Any] | PretrainConfig, overrides: list[str] | None = None
) -> PretrainConfig:
    """Reads and checks a pretraining config: a path, the name of a shipped one, a mapping, or an instance."""
    return config_tree.load(PretrainConfig, source, overrides or [])


def prepare(
    config: str | Path | Mapping[str, Any] | PretrainConfig, overrides: list[str] | None = None
) -> dict[str, Corpus]:
    """Makes the tokenizers and corpora of a pretraining config, and nothing else.

    Returns:
        The corpora by domain; the data report of each is its ``report``.
    """
    settings = load_config(config, overrides)
    with Console() as console:
        return Preparation(settings, console).corpora()


def pretrain(
    config: str | Path | Mapping[str, Any] | PretrainConfig,
    overrides: list[str] | None = None,
    *,
    resume: str | None = None,
    overwrite: bool = False,
) -> PretrainResult:
    """Trains an encoder on the domains of a config.

    Args:
        config: A path, the name of a shipped config, a mapping, or a :class:`PretrainConfig`.
        overrides: As on the command line: ``["--training.steps", "50"]``.
        resume: "auto" goes on from the newest intact checkpoint of the output folder, or starts afresh where
            there is none; a path names a checkpoint.
        overwrite: Replace a run that the output folder holds.

    Raises:
        SeqbertError: whatever the user can mend: a key, a file, a folder that holds another run.
    """
    settings = load_config(config, overrides)
    with Console() as console:
        return _Run(settings, console, resume, overwrite).carry_out()


class Preparation:
    """What a config means before there is any data: plugins, the encoder's shape, objectives; then the corpora."""

    def __init__(self, config: PretrainConfig, console: Console | None = None) -> None:
        self.config = config
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
        )
        return build_corpus(request, corpus_cache(run.corpus_dir), run.workers, self.console.preparing)

    def _given_tokenizer(self, name: str) -> str | None:
        part = self.config.domains[name]
        if part.tokenizer is not None:
            given = _read_tokenizer(Path(part.tokenizer), name)
            self._check_keeps(name, given)
            return given
        if self.initial is None or part.vocabulary == "replace":
            return None
        return self.initial.tokenizer(name)

    def _check_keeps(self, name: str, given: str) -> None:
        """The embeddings of init mean what its own tokenizer says."""
        from tokenizers import Tokenizer

        own = None if self.initial is None else self.initial.tokenizer(name)
        if own is None or self.config.domains[name].vocabulary == "replace":
            return
        if Tokenizer.from_str(own).get_vocab() != Tokenizer.from_str(given).get_vocab():
            raise ConfigError(
                f"domains.{name}.tokenizer is another than the one that the embeddings of init were trained with: "
                f"leave it out, or set domains.{name}.vocabulary to replace, which makes new embeddings."
            )


def corpus_cache(configured: str | None) -> Path:
    """The folder that corpora are kept in."""
    if configured is not None:
        return Path(configured).expanduser()
    if "SEQBERT_CACHE" in os.environ:
        return Path(os.environ["SEQBERT_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "seqbert" / "corpora"


def _read_tokenizer(path: Path, name: str) -> str:
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return str(Tokenizer.from_file(str(file)).to_str())
    except Exception as error:  # the library raises plain Exception
        raise ConfigError(f'domains.{name}.tokenizer: "{file}" is no tokenizer: {error}.') from error


class _Run:
    """One pretraining run, from its config to its result."""

    def __init__(self, config: PretrainConfig, console: Console, resume: str | None, overwrite: bool) -> None:
        self.config = config
        self.console = console
        self.resume = resume
        self.notes: list[str] = []
        self.device = Device.of(config.run)
        self.preparation = Preparation(config, console)
        self.folder = RunFolder(Path(config.output))
        self.folder.check(overwrite, resume is not None)
        self._check_places()
        if resume is not None and self.folder.exists():
            self._check_same_config()

    def carry_out(self) -> PretrainResult:
        corpora = self.preparation.corpora()
        for name, corpus in corpora.items():
            _check_corpus(corpus, self.config.domains[name])
        objectives = {name: self._objective(name, corpus) for name, corpus in corpora.items()}
        sources = {name: self._source(corpus, objectives[name], TRAIN) for name, corpus in corpora.items()}
        for name, source in sources.items():
            objectives[name].calibrate(source)
        model = self._model(corpora, objectives)
        training = self.config.training
        optimizer = build_optimizer(training.optimizer, model.named_parameters(), training.learning_rate)
        progress = self._restore(model, optimizer, corpora)
        self.folder.begin(resume=self.resume is not None)
        self._write_inputs(corpora)
        log = MetricsLog(self.folder.path, progress.step)
        loop = self._loop(model, objectives, corpora, optimizer, progress, log)
        parts = [(objectives[name], sources[name]) for name in corpora]
        remaining = range(progress.step, training.steps)
        self._say_start(model, corpora, sources)
        try:
            after = loop.run(load_steps(parts, remaining, self.config.run.workers))
        finally:
            log.close()
        return self._result(corpora, progress, after)

    def _check_places(self) -> None:
        init, resume, folder = self.config.init, self.resume, self.folder.path.resolve()
        if resume is None and init is not None and Path(init).resolve().is_relative_to(folder):
            raise ConfigError(
                f'The run would replace what it begins from: init ("{init}") lies in its output folder '
                f'("{self.folder.path}"). Name another one (--output).'
            )
        if resume not in (None, "auto") and not Path(str(resume)).resolve().is_relative_to(folder):
            raise ConfigError(
                f'The checkpoint "{resume}" (--resume) is of another run than "{self.folder.path}" (output). To begin '
                "a new run from the weights of another one, set init."
            )

    def _check_same_config(self) -> None:
        old = config_tree.load(PretrainConfig, self.folder.config)
        changes = [
            change for change in config_tree.difference(old, self.config) if not change.startswith(("run.", "output:"))
        ]
        if changes:
            raise ConfigError(
                f'The run in "{self.folder.path}" was begun with another config, so going on would not give what '
                f"either config describes: {'; '.join(changes)}. Use the config of the run "
                f"({self.folder.config}), or begin a new one with init: {self.folder.path}."
            )

    def _objective(self, name: str, corpus: Corpus) -> Objective:
        config, asked = self.preparation.objective(name), self.config.domains[name].objective or self.config.objective
        if config.pair != asked.pair:
            self._note(
                f"{name}: a document of this domain is one segment, so there are no pairs for {asked.pair}: "
                "it trains without them."
            )
        return Objective(config, corpus)

    def _source(self, corpus: Corpus, objective: Objective, part: str) -> Source:
        config = self.config
        split = corpus.split(part)
        seed = config.seed if part == TRAIN else VALIDATION_SEED
        weights = {name: domain.weight for name, domain in config.domains.items()}
        share = weights[corpus.domain] / sum(weights.values())
        budget = max(config.training.max_length, int(share * config.training.tokens_per_step))
        size = objective.window_size(config.training.max_length)
        plan = Plan.of(corpus, split, size, seed)
        return Source(corpus, split, plan, seed, config.training.max_length, budget)

    def _write_inputs(self, corpora: Mapping[str, Corpus]) -> None:
        folder = self.folder
        folder.config.write_text(config_tree.dump(self.config), encoding="utf-8")
        for name, corpus in corpora.items():
            folder.tokenizer(name).parent.mkdir(parents=True, exist_ok=True)
            folder.tokenizer(name).write_text(corpus.tokenizer_json, encoding="utf-8")
        write_json(folder.path / "data.json", {name: corpus.report for name, corpus in corpora.items()})

    def _model(self, corpora: Mapping[str, Corpus], objectives: Mapping[str, Objective]) -> Model:
        tokenizers = {name: _tokenizer(corpus) for name, corpus in corpora.items()}
        heads = {name: objective.heads for name, objective in objectives.items()}
        replaced = {name for name, part in self.config.domains.items() if part.vocabulary == "replace"}
        model, notes = build_model(
            self.preparation.encoder, tokenizers, heads, self.config.seed, self.preparation.initial, replaced
        )
        for note in notes:
            self._note(note)
        if self.config.run.compile:
            for block in model.encoder.blocks:
                block.feed_forward.compile(dynamic=True)  # type: ignore[union-attr]
        return model.to(self.device.torch)

    def _restore(self, model: Model, optimizer: Any, corpora: Mapping[str, Corpus]) -> checkpoint.Progress:
        data = {name: corpus.fingerprint for name, corpus in corpora.items()}
        if self.resume is None:
            return checkpoint.Progress(data=data)
        if self.resume == "auto":
            path = checkpoint.newest_checkpoint(self.folder.checkpoints, self._note)
        else:
            path = Path(self.resume)
            if not path.is_dir():
                raise CheckpointError(f'There is no checkpoint at "{path}" (--resume).')
        if path is None:
            self._note("There is no checkpoint yet: the run starts at step 0.")
            return checkpoint.Progress(data=data)
        progress = checkpoint.load_checkpoint(path, model, optimizer)
        changed = [name for name, fingerprint in data.items() if progress.data.get(name) != fingerprint]
        if changed:
            raise ConfigError(
                f'The data of {", ".join(changed)} is not what the run in "{self.folder.path}" was begun with, so '
                "going on would give neither run. Bring the old files back, or begin a new run with init."
            )
        self._note(f"Going on after step {progress.step}, from {path}.")
        return progress

    def _loop(
        self,
        model: Model,
        objectives: Mapping[str, Objective],
        corpora: Mapping[str, Corpus],
        optimizer: Any,
        progress: checkpoint.Progress,
        log: MetricsLog,
    ) -> Loop:
        config, training, run = self.config, self.config.training, self.config.run
        held_out = {
            name: self._source(corpus, objectives[name], VALIDATION)
            for name, corpus in corpora.items()
            if corpus.report[VALIDATION]["tokens"]
        }
        weights = {name: part.weight for name, part in config.domains.items()}
        shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}

        def validate() -> dict[str, Metrics]:
            return {
                name: evaluate(
                    model,
                    objectives[name],
                    objectives[name].validation(source, training.validation_tokens),
                    self.device,
                    source.corpus.unigram_bits,
                    run.micro_tokens or self.device.micro_tokens,
                )
                for name, source in held_out.items()
            }

        def score(metrics: dict[str, Metrics]) -> float | None:
            losses = [
                shares[name] * loss
                for name, row in metrics.items()
                if (loss := row.get(f"{objectives[name].token_term.name}_loss")) is not None
            ]
            return sum(losses) if losses else None

        return Loop(
            model=model,
            learnables=objectives,
            shares=shares,
            optimizer=optimizer,
            schedule=training.schedule.factor,
            settings=LoopSettings(
                seed=config.seed,
                steps=training.steps,
                learning_rate=training.learning_rate,
                clip_norm=training.clip_norm,
                evaluate_every=training.evaluate_every,
                log_every=run.log_every,
                checkpoint_every=run.checkpoint_every,
                keep=run.keep,
                micro_tokens=run.micro_tokens or self.device.micro_tokens,
            ),
            device=self.device,
            folder=self.folder.checkpoints,
            validate=validate,
            score=score,
            keep_best=lambda: self._save_model(model),
            console=self.console,
            log=log,
            progress=progress,
        )

    def _save_model(self, model: Model) -> None:
        from safetensors import SafetensorError

        names = list(self.config.domains)

        def fill(draft: Path) -> None:
            for name in names:
                target = draft if len(names) == 1 else draft / name
                tokenizer = self.folder.tokenizer(name)
                hub.save(model, name, target, tokenizer, self.config.training.max_length)

        try:
            replace_folder(self.folder.path / "model", fill)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(f'The model cannot be written to "{self.folder.path}": {reason}.') from error

    def _say_start(self, model: Model, corpora: Mapping[str, Corpus], sources: Mapping[str, Source]) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for name, corpus in corpora.items():
            train, held = corpus.report[TRAIN], corpus.report[VALIDATION]
            self._note(
                f"{name}: {train['documents']:,} documents, {train['tokens']:,} tokens "
                f"({held['tokens']:,} held out), vocabulary of {corpus.vocab_size:,}, "
                f"about {sources[name].plan.sequences_per_step} sequences a step"
            )
        self.console.say(f"{parameters:,} parameters on {self.device}, {self.config.training.steps:,} steps")

    def _result(
        self, corpora: Mapping[str, Corpus], progress: checkpoint.Progress, after: dict[str, Metrics]
    ) -> PretrainResult:
        domains = {
            name: DomainResult(
                progress.first.get(name, {}),
                after.get(name, {}),
                corpus.manifest["symbol"],
                *_example(corpus, self.config.training.max_length),
            )
            for name, corpus in corpora.items()
        }
        write_json(
            self.folder.path / "result.json",
            {
                "best_step": progress.best_step,
                "tokens": progress.tokens,
                "notes": self.notes,
                "domains": {
                    name: {
                        "before": reported(row.before),
                        "after": reported(row.after),
                        "symbol": row.symbol,
                    }
                    for name, row in domains.items()
                },
            },
        )
        return PretrainResult(self.folder.path, domains, progress.best_step, self.notes)

    def _note(self, message: str) -> None:
        self.notes.append(message)
        self.console.say(message)


def _example(corpus: Corpus, max_length: int) -> tuple[list[int], int]:
    """The first tokens of a segment from the middle of what is held out, and the place of one with a symbol."""
    part = VALIDATION if corpus.report[VALIDATION]["tokens"] else TRAIN
    split = corpus.split(part)
    start, stop = split.segment(len(split.length) // 2)
    ids = corpus.store.ids(start, min(stop, start + min(EXAMPLE_TOKENS, max_length - 2))).astype(int)
    ordinary = ~corpus.special_mask[ids] & (corpus.symbols[ids] > 0)
    candidates = ordinary.nonzero()[0] if ordinary.any() else range(len(ids))
    return ids.tolist(), int(candidates[len(candidates) // 2])


def _tokenizer(corpus: Corpus) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(corpus.tokenizer_json)


def _check_corpus(corpus: Corpus, config: DomainConfig) -> None:
    if not corpus.report[TRAIN]["tokens"]:
        raise DataError(
            f'Nothing is left to train on in the domain "{corpus.domain}": all {corpus.report[VALIDATION]["tokens"]:,} '
            f"tokens are held out (domains.{corpus.domain}.validation is {config.validation})."
        )
