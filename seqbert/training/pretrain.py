"""``seqbert pretrain`` and ``seqbert prepare``: from a config to a trained encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqbert import config as config_tree
from seqbert.data.corpus import TRAIN, VALIDATION, Corpus
from seqbert.data.group_figures import Grouping
from seqbert.data.packing import PackedBatch
from seqbert.data.plan import Plan, Source
from seqbert.data.stages import Stages
from seqbert.data.static import cut
from seqbert.data.whole import replace_folder, write_json, write_text
from seqbert.errors import CheckpointError, DataError
from seqbert.models import hub
from seqbert.models.model import Model
from seqbert.objectives import Objective
from seqbert.training import checkpoint
from seqbert.training.device import Device
from seqbert.training.evaluation import Metrics, evaluate, reported
from seqbert.training.initialise import build_model
from seqbert.training.loader import ENDLESS, load_steps
from seqbert.training.logging import Console, MetricsLog
from seqbert.training.loop import Loop, LoopSettings
from seqbert.training.optimizers import build_optimizer
from seqbert.training.parallel import World, job_name, join
from seqbert.training.preparation import Preparation, with_piped_data
from seqbert.training.pretrain_config import DomainConfig, PretrainConfig, load_config
from seqbert.training.resuming import Resuming, as_restarted, manner_of
from seqbert.training.run_folder import RunFolder, note_step
from seqbert.training.self_test import warning_about
from seqbert.training.signals import StopSignals
from seqbert.training.warmups import plan_stages

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VALIDATION_SEED = 0
"""Keys the masks and pairs of validation, whatever the run's seed, so that runs can be compared."""


NOTABLE_UNKNOWN = 0.01
"""Share of unknown tokens above which the user is told."""

EXAMPLE_TOKENS = 40
"""Tokens of the stretch that shows what a model learned."""


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


def prepare(
    config: str | Path | Mapping[str, Any] | PretrainConfig, overrides: list[str] | None = None
) -> dict[str, Corpus]:
    """Makes the tokenizers and corpora of a pretraining config, and nothing else.

    Tokenizers and data report are written into the output folder too, unless it holds a run already.

    Under torchrun each process reads a part of the files.

    Returns:
        The corpora by domain; the data report of each is its ``report``.
    """
    settings = load_config(config, overrides)
    folder = RunFolder(Path(settings.output))
    with StopSignals() as signals, join(signals) as world, Console(world.leads) as console:
        settings = with_piped_data(settings, world)
        if world.leads and not folder.exists():
            folder.check(overwrite=False, resume=False)
        corpora = Preparation(settings, console, world).corpora()
        if world.leads and not folder.exists():
            folder.begin(resume=False)
            write_inputs(folder, corpora)
    return corpora


def pretrain(
    config: str | Path | Mapping[str, Any] | PretrainConfig,
    overrides: list[str] | None = None,
    *,
    resume: str | None = None,
    overwrite: bool = False,
    allow_changes: bool = False,
) -> PretrainResult:
    """Trains an encoder on the domains of a config; under torchrun every process takes a share of each step.

    Ctrl-C and SIGTERM let it finish the step, save a checkpoint, and end.

    Args:
        config: A path, the name of a shipped config, a mapping, or a :class:`PretrainConfig`.
        overrides: As on the command line: ``["--training.steps", "50"]``.
        resume: "auto" goes on from the newest intact checkpoint of the output folder, or starts afresh where
            there is none; a path names a checkpoint.
        overwrite: Replace a run that the output folder holds.
        allow_changes: Resume even though the config or the data is another: another batch, vocabulary or objective.

    Raises:
        SeqbertError: whatever the user can mend: a key, a file, a folder that holds another run.
        Stopped: at Ctrl-C or SIGTERM.
    """
    settings = load_config(config, overrides)
    with StopSignals() as signals, join(signals) as world, Console(world.leads) as console:
        resume, overwrite = as_restarted(RunFolder(Path(settings.output)), world, resume, overwrite)
        settings = with_piped_data(settings, world)
        return _Run(settings, console, world, resume, overwrite, allow_changes).carry_out()


class _Run:
    """One pretraining run, from its config to its result."""

    def __init__(
        self,
        config: PretrainConfig,
        console: Console,
        world: World,
        resume: str | None,
        overwrite: bool,
        allow_changes: bool,
    ) -> None:
        self.config, self.console, self.world = config, console, world
        self.notes: list[str] = []
        self.device = Device.of(config.run, world)
        self.preparation = Preparation(config, console, world)
        self.folder = RunFolder(Path(config.output))
        self.resuming = Resuming(self.folder, resume, allow_changes, self._note, world, overwrite)
        self.resuming.check(config)

    def carry_out(self) -> PretrainResult:
        with self.resuming.place():
            return self._carry_out()

    def _carry_out(self) -> PretrainResult:
        if self.world.leads and (told := warning_about(self.device.torch)) is not None:
            self._note(told)
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
        data = {name: corpus.fingerprint for name, corpus in corpora.items()}
        progress = self.resuming.restore(model, optimizer, sources, data, manner_of(self.device, self.world))
        self.resuming.check_length(progress, training.steps, training.minutes)
        self.world.wait()  # until all have read the checkpoint
        if self.world.leads:
            self.folder.begin(self.resuming.resume is not None, job_name())
            self._write_inputs(corpora)
        log = MetricsLog(self.folder.path, progress.step, progress.evaluated == progress.step, self.world.leads)
        loop = self._loop(model, objectives, sources, corpora, optimizer, progress, log)
        parts = [(objectives[name], sources[name]) for name in corpora]
        remaining = range(progress.step, ENDLESS if training.steps is None else training.steps)
        self._say_start(model, corpora, sources)
        try:
            after = loop.run(load_steps(parts, remaining, self.config.run.workers, self.world.share))
        finally:
            log.close()
        return self._result(corpora, progress, after)

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
        training, share = config.training, config.shares[corpus.domain]
        budget = max(training.max_length, int(share * training.tokens_per_step))
        size = objective.window_size(training.max_length)
        source = Source(corpus, split, Plan.of(corpus, split, size, seed), seed, training.max_length, budget)
        if part == TRAIN:
            source.augmentations = self.preparation.augmentations(corpus)
            source.stages = Stages(
                plan_stages(
                    training.tokens_per_step,
                    training.max_length,
                    share,
                    len(config.domains),
                    training.batch_warmup,
                    training.length_warmup,
                )
            )
        return source

    def _write_inputs(self, corpora: Mapping[str, Corpus]) -> None:
        write_text(self.folder.config, config_tree.dump(self.config))
        write_inputs(self.folder, corpora)

    def _model(self, corpora: Mapping[str, Corpus], objectives: Mapping[str, Objective]) -> Model:
        tokenizers = {name: _tokenizer(corpus) for name, corpus in corpora.items()}
        heads = {name: objective.config.heads for name, objective in objectives.items()}
        replaced = {name for name, part in self.config.domains.items() if part.vocabulary == "replace"}
        model, notes = build_model(
            self.preparation.encoder,
            tokenizers,
            heads,
            self.config.seed,
            self.preparation.initial,
            replaced,
            frequencies={name: corpus.frequencies for name, corpus in corpora.items()},
        )
        for note in notes:
            self._note(note)
        return self.device.place(model)

    def _loop(
        self,
        model: Model,
        objectives: Mapping[str, Objective],
        sources: Mapping[str, Source],
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
        shares = config.shares

        def validate() -> dict[str, Metrics]:
            return {
                name: evaluate(
                    model,
                    objectives[name],
                    objectives[name].validation(source, training.validation_tokens),
                    self.device,
                    source.corpus.unigram_bits,
                    self.world,
                    Grouping.of(source.corpus, source.split),
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
                minutes=training.minutes,
                learning_rate=training.learning_rate,
                clip_norm=training.clip_norm,
                evaluate_every=training.evaluate_every,
                log_every=run.log_every,
                checkpoint_every=run.checkpoint_every,
            ),
            device=self.device,
            world=self.world,
            checkpoints=checkpoint.Checkpoints(self.folder.checkpoints, run.keep, self.world.leads, progress.step),
            validate=validate,
            score=score,
            keep_best=lambda: self._save_model(model, progress.best_step),
            visited=lambda step: {name: source.visited(step) for name, source in sources.items()},
            console=self.console,
            log=log,
            progress=progress,
            is_saved=not self.resuming.is_changed,
            best=self.resuming.best,
            cut=self._cut(objectives, sources) if self.device.compiles(model.config) else None,
        )

    def _cut(
        self, objectives: Mapping[str, Objective], sources: Mapping[str, Source]
    ) -> Callable[[PackedBatch, int], list[PackedBatch]]:
        """Makes the micro-batches of a step, all of one shape."""

        def micro_batches(batch: PackedBatch, step: int) -> list[PackedBatch]:
            source = sources[batch.vocabulary]
            most, ranks = self.device.micro_tokens, self.world.size
            return cut(batch, objectives[batch.vocabulary].shape(source, step, most, ranks))

        return micro_batches

    def _save_model(self, model: Model, step: int | None) -> None:
        names = list(self.config.domains)

        def fill(draft: Path) -> None:
            for name in names:
                target = draft if len(names) == 1 else draft / name
                tokenizer = self.folder.tokenizer(name)
                hub.save(model, name, target, tokenizer, self.config.training.max_length)
            note_step(draft, step)

        try:
            replace_folder(self.folder.path / "model", fill)
        except OSError as error:
            raise CheckpointError(f'The model cannot be written to "{self.folder.path}": {error.strerror}.') from error

    def _say_start(self, model: Model, corpora: Mapping[str, Corpus], sources: Mapping[str, Source]) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for name, corpus in corpora.items():
            train, held = corpus.report[TRAIN], corpus.report[VALIDATION]
            self._note(
                f"{name}: {train['documents']:,} documents, {train['tokens']:,} tokens "
                f"({held['tokens']:,} held out), vocabulary of {corpus.vocab_size:,}, "
                f"about {sources[name].stages.all[-1].sequences} sequences a step"
            )
            if corpus.report["unknown_share"] > NOTABLE_UNKNOWN:
                self._note(
                    f"{name}: {corpus.report['unknown_share']:.1%} of the tokens are [UNK]: raise "
                    f"domains.{name}.vocab_size, or look at what the data holds."
                )
        processes = f", {self.world.size} processes" if self.world.size > 1 else ""
        training = self.config.training
        limits = [] if training.minutes is None else [f"{training.minutes:g} minutes"]
        limits += [] if training.steps is None else [f"{'at most ' if limits else ''}{training.steps:,} steps"]
        self.console.say(f"{parameters:,} parameters on {self.device}, {', '.join(limits)}{processes}")

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
        result = PretrainResult(self.folder.path, domains, progress.best_step, self.notes)
        if not self.world.leads:
            return result
        write_json(
            self.folder.path / "result.json",
            {
                "best_step": progress.best_step,
                "steps": progress.step,
                **({} if self.config.training.minutes is None else {"seconds": round(progress.seconds, 1)}),
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
        return result

    def _note(self, message: str) -> None:
        self.notes.append(message)
        self.console.say(message)


def write_inputs(folder: RunFolder, corpora: Mapping[str, Corpus]) -> None:
    """Writes the tokenizers and the data report into a run's folder."""
    for name, corpus in corpora.items():
        folder.tokenizer(name).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder.tokenizer(name), corpus.tokenizer_json)
    write_json(folder.path / "data.json", {name: corpus.report for name, corpus in corpora.items()})


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
