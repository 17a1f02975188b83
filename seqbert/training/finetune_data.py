"""The labelled records of a run: read, split, checked, and reported on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqbert.data.holdout import hold_out, shared_sequences, take
from seqbert.data.records import Records
from seqbert.data.similarity import Sequences
from seqbert.data.table import TableOptions, find_tables, read_examples
from seqbert.data.ties import Grouping, SplitConfig, Ties
from seqbert.domain import Domain, Example, Report
from seqbert.errors import DataError, nearest
from seqbert.tasks import Source, Task
from seqbert.tasks.task import listed
from seqbert.training.finetune_config import FinetuneDataConfig

TRAIN, VALIDATION, TEST = "train", "validation", "test"

SAMPLE = "sample"


@dataclasses.dataclass(slots=True)
class LabelledData:
    """The records of each part, and what became of those that were read.

    Attributes:
        parts: The records by part; a part without records is left out.
        reports: What was read, by part, as plain data.
        shared: For validation and test, how many records have sequences that stand in training too.
    """

    parts: dict[str, list[Example]]
    reports: dict[str, dict[str, Any]]
    shared: dict[str, int]

    @property
    def train(self) -> list[Example]:
        """The training records."""
        return self.parts[TRAIN]


def read_labelled(
    config: FinetuneDataConfig, task: Task[Any], domain: Domain, note: Callable[[str], None], strict: bool = False
) -> LabelledData:
    """Reads the records of a run, holds a share out for validation, and fits the task's labels.

    Args:
        config: What is read, and how.
        task: What the records are for.
        domain: Their domain.
        note: Is told what the user should know.
        strict: Make each record that is skipped, cut, repaired or mapped an error.

    Raises:
        DataError: A file cannot be read, a label of validation or test does not occur in training, or nothing is
            left to train on.
    """
    if not config.train:
        raise DataError(
            f'No training records are given: name files, folders or globs under data.train, or "{SAMPLE}" for the '
            f'table that comes with the domain "{domain.name}".'
        )
    reports: dict[str, dict[str, Any]] = {}
    train, reports[TRAIN] = _read(config.train, config, task, domain, strict)
    _check_any(train, TRAIN, config.train)
    parts = {TRAIN: train}
    if not isinstance(config.validation, float | int):
        parts[VALIDATION], reports[VALIDATION] = _read(config.validation, config, task, domain, strict)
        _check_any(parts[VALIDATION], VALIDATION, config.validation)
    elif config.validation > 0:
        task.prepare_strata(train)
        ties = None if config.split.by is None else record_ties(train, config.split, task, domain)
        parts[TRAIN], parts[VALIDATION] = hold_out(
            train,
            config.validation,
            stratum=task.stratum,
            group=config.group,
            ties=None if ties is None else ties.labels.tolist(),
            labels=task.labels_of,
        )
        reports[VALIDATION] = {"held_out_of": TRAIN, "share": config.validation, "group": config.group}
        if ties is not None:
            held_out = set(map(id, parts[VALIDATION]))
            split = ties.report(np.array([id(example) in held_out for example in train]))
            reports[VALIDATION]["split"] = split
            note(
                f"Validation records are held out in whole groups (by {ties.by}): {split['held_out']['groups']:,} of "
                f"{split['groups']:,}, of which the largest has {split['largest']:,} records; "
                f"{split['records_without_group']:,} records are of none."
            )
    if config.test:
        parts[TEST], reports[TEST] = _read(config.test, config, task, domain, strict)
        _check_any(parts[TEST], TEST, config.test)
    task.fit(parts[TRAIN])
    if config.train_size is not None:
        if config.train_size > len(parts[TRAIN]):
            note(f"data.train_size is {config.train_size:,}, and there are {len(parts[TRAIN]):,}: all are used.")
        parts[TRAIN] = take(parts[TRAIN], config.train_size)
    task.measure(parts[TRAIN])
    for part in (VALIDATION, TEST):
        if part in parts:
            parts[part], left_out = with_known_labels(parts[part], part, task, config.unseen_labels, note)
            _check_any(parts[part], part, "all files, with labels that training has,")
            if left_out:
                reports[part]["unseen_labels"] = left_out
    what, place = ("contexts", 1) if task.shape == "question" else ("sequences", None)
    shared = {part: shared_sequences(parts[TRAIN], rows, place) for part, rows in parts.items() if part != TRAIN}
    for part, count in shared.items():
        if count:
            note(
                f"{count:,} of the {len(parts[part]):,} {part} records have {what} that stand in the training "
                "records too: its metrics flatter the model."
            )
    if config.split.by is not None and (config.test or not isinstance(config.validation, float | int)):
        _check_ties(parts, reports, config.split, task, domain, note)
    return LabelledData(parts, reports, shared)


def record_ties(examples: Sequence[Example], split: SplitConfig, task: Task[Any], domain: Domain) -> Ties:
    """The groups of records that are kept together, as ``data.split`` asks.

    Of a question its context is compared, of other records all their sequences as one.

    Raises:
        DataError: No record has the metadata key, or none is named in the cluster file.
    """
    if split.alike is None:
        grouping = Grouping(str(split.by), "data.split.by")
        for example in examples:
            grouping.add(example.id, example.metadata)
        return grouping.ties()
    texts = [
        (domain.canonical(example.sequences[1]),) if task.shape == "question" else example.sequences
        for example in examples
    ]
    # A tokenizer of its own: the run's may not be there yet, and the same records are to be alike in any run.
    domain = type(domain)(domain.options)
    domain.use(domain.tokenizer((text for record in texts for text in record), None))
    numbers: dict[tuple[str, ...], int] = {}
    known = [numbers.setdefault(record, len(numbers)) for record in texts]
    with Sequences(domain) as sequences:
        for record, number in numbers.items():
            for text in record:
                encoded = domain.encode([text], offsets=False)
                sequences.add(number, encoded.ids, encoded.units)
        clusters = sequences.clusters(len(numbers), split.alike)
    return dataclasses.replace(Ties.of(clusters, split.alike), labels=clusters.labels[known])


def _check_ties(
    parts: dict[str, list[Example]],
    reports: dict[str, dict[str, Any]],
    split: SplitConfig,
    task: Task[Any],
    domain: Domain,
    note: Callable[[str], None],
) -> None:
    """Reports how many validation and test records are of groups that training has, whoever divided them."""
    ties = record_ties([example for rows in parts.values() for example in rows], split, task, domain)
    edges = np.cumsum([0, *map(len, parts.values())])
    labels = {part: ties.labels[edges[n] : edges[n + 1]] for n, part in enumerate(parts)}
    for part in parts.keys() - {TRAIN}:
        trained = labels[TRAIN][labels[TRAIN] >= 0]
        count = int(np.isin(labels[part], trained).sum())
        reports[part]["grouped_with_train"] = {"by": ties.by, "records": count} | ties.facts
        if count:
            note(
                f"{count:,} of the {len(labels[part]):,} {part} records are of groups (by {ties.by}) that have "
                "training records too: its metrics flatter the model where it is to meet new groups."
            )


def read_tables(
    entries: str | Sequence[str],
    options: TableOptions,
    task: Task[Any],
    domain: Domain,
    report: Report,
    labelled: bool = True,
    folder: str | None = None,
) -> list[Example]:
    """The records of files, folders and globs, or of a table that comes with the domain.

    Raises:
        DataError: A file cannot be read, or nothing in it can be used.
    """
    names = [entries] if isinstance(entries, str) else list(entries)
    samples = [name for name in names if name == SAMPLE or name.startswith(f"{SAMPLE}:")]
    examples: list[Example] = []
    for name in samples:
        examples += _sample(name.partition(":")[2] or task.config.name, domain, report)
    named = [name for name in names if name not in samples]
    if named:
        files = find_tables(named, folder, domain)
        several = bool(getattr(task.config, "multilabel", False))
        examples += read_examples(
            files, task.config.name, options, domain, report, labelled=labelled, multilabel=several
        )
    wrong = next((one for one in examples if labelled and not _suits(one, task.config.name, domain)), None)
    if wrong is not None:
        raise DataError(
            f"{wrong.source or names}: record {wrong.id} has the label {str(wrong.label)[:40]!r}, which is none for "
            f"{task.config.name}. Set task.name to what these records are for, or name others."
        )
    return examples


def _read(
    entries: str | Sequence[str], config: FinetuneDataConfig, task: Task[Any], domain: Domain, strict: bool
) -> tuple[list[Example], dict[str, Any]]:
    report = Report(strict)
    examples = read_tables(entries, config, task, domain, report, folder=config.folder)
    return examples, report.to_dict()


def _sample(name: str, domain: Domain, report: Report) -> list[Example]:
    tables = domain.sample().tables
    if name not in tables:
        has = f"it has {', '.join(tables)}" if tables else "it has none"
        raise DataError(
            f'The domain "{domain.name}" comes with no table "{name}"; {has}.{nearest(name, tables)} Name files under '
            "data.train instead."
        )
    examples = list(tables[name]())
    report.yielded += len(examples)
    report.files.append(f"{SAMPLE}:{name}")
    return examples


def _check_any(examples: list[Example], part: str, entries: Any) -> None:
    if not examples:
        raise DataError(f"There are no {part} records in {entries} that can be used.")


def _suits(example: Example, task: str, domain: Domain) -> bool:
    """Whether a record has a label of the kind that a task takes."""
    label, texts = example.label, len(example.sequences)
    match task:
        case "classification":
            return isinstance(label, str) or (isinstance(label, list) and all(isinstance(one, str) for one in label))
        case "regression":
            return isinstance(label, int | float)
        case "tagging":
            return isinstance(label, list) and len(label) == len(domain.words_of(example))
        case "span":
            return isinstance(label, list) and texts == 2 and all(len(one) == 2 for one in label)
        case _:
            return isinstance(label, int) and texts > 2 and 0 <= label < texts - 1


def with_known_labels(
    examples: list[Example], part: str, task: Task[Any], policy: str, note: Callable[[str], None]
) -> tuple[list[Example], dict[str, int]]:
    """The records whose labels training has seen, and how often the other labels occur.

    Args:
        examples: The records.
        part: What they are called in messages.
        task: Knows the labels.
        policy: "error" or "skip".
        note: Is told what is left out.

    Raises:
        DataError: There are other labels, and none may be left out.
    """
    unseen = task.unseen(examples)
    if not unseen:
        return examples, {}
    strange = [example for example in examples if task.unseen([example])]
    what = f"{len(strange):,} {part} records have labels that no training record has: {listed(list(unseen), unseen)}"
    if policy == "error":
        known = ", ".join(task.label_names or [])
        raise DataError(
            f"{what}; the first is {strange[0].source or strange[0].id}. Training has: {known}. Mend the records, list "
            "the labels under task.labels, or set unseen_labels to skip."
        )
    note(f"{what}; they are left out.")
    left_out = set(map(id, strange))
    return [example for example in examples if id(example) not in left_out], dict(unseen)


def part_report(source: Source, task: Task[Any], domain: Domain) -> dict[str, Any]:
    """Counts, lengths, labels, and what did not fit, of one part."""
    records, inputs = source.records, source.inputs
    lengths = records.record_lengths()
    unknown = domain.vocabulary.token_to_id("[UNK]")
    return {
        "records": len(records),
        "labels": _label_counts(records, task),
        "tokens_per_record": {
            "least": int(lengths.min()),
            "median": int(np.median(lengths)),
            "most": int(lengths.max()),
        },
        "unknown_share": round(float((records.ids == unknown).mean()), 6) if len(records.ids) else 0.0,
        "sequences": len(inputs),
        "windowed_records": inputs.windowed,
        "cut_records": inputs.cut,
        "cut_tokens": inputs.cut_tokens,
        "duplicates": len(records) - len({example.sequences for example in records.examples}),
    }


def _label_counts(records: Records, task: Task[Any]) -> dict[str, Any]:
    labels = [example.label for example in records.examples]
    if task.config.name == "regression":
        values = np.array(labels, np.float64)
        return {
            name: round(float(f(values)), 6) for name, f in (("least", np.min), ("mean", np.mean), ("most", np.max))
        }
    if task.config.name == "span":
        answered = sum(bool(label) for label in labels)
        return {"answerable": answered, "unanswerable": len(labels) - answered}
    flat = (str(one) for label in labels for one in (label if isinstance(label, list) else [label]))
    return dict(sorted(Counter(flat).items()))


def fingerprint(parts: dict[str, list[Example]], tokenizer_json: str) -> str:
    """Stands for the records of a run and its tokenizer; not for where the files lie."""
    digest = hashlib.sha256(tokenizer_json.encode())
    for part in (TRAIN, VALIDATION):
        for example in parts.get(part, []):
            row = [part, example.id, example.sequences, example.label]
            digest.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()
