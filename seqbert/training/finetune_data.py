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
from seqbert.data.table import find_tables, read_examples
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
    config: FinetuneDataConfig, task: Task[Any], domain: Domain, note: Callable[[str], None]
) -> LabelledData:
    """Reads the records of a run, holds a share out for validation, and fits the task's labels.

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
    train, reports[TRAIN] = _read(config.train, config, task, domain)
    _check_any(train, TRAIN, config.train)
    parts = {TRAIN: train}
    if not isinstance(config.validation, float | int):
        parts[VALIDATION], reports[VALIDATION] = _read(config.validation, config, task, domain)
        _check_any(parts[VALIDATION], VALIDATION, config.validation)
    elif config.validation > 0:
        task.prepare_strata(train)
        parts[TRAIN], parts[VALIDATION] = hold_out(train, config.validation, stratum=task.stratum, group=config.group)
        reports[VALIDATION] = {"held_out_of": TRAIN, "share": config.validation, "group": config.group}
    if config.test:
        parts[TEST], reports[TEST] = _read(config.test, config, task, domain)
        _check_any(parts[TEST], TEST, config.test)
    if config.train_size is not None:
        if config.train_size > len(parts[TRAIN]):
            note(f"data.train_size is {config.train_size:,}, and there are {len(parts[TRAIN]):,}: all are used.")
        parts[TRAIN] = take(parts[TRAIN], config.train_size)
    task.fit(parts[TRAIN])
    for part in (VALIDATION, TEST):
        if part in parts:
            parts[part] = _with_known_labels(parts[part], part, task, config, reports[part], note)
    what, place = ("contexts", 1) if task.shape == "question" else ("sequences", None)
    shared = {part: shared_sequences(parts[TRAIN], rows, place) for part, rows in parts.items() if part != TRAIN}
    for part, count in shared.items():
        if count:
            note(
                f"{count:,} of the {len(parts[part]):,} {part} records have {what} that stand in the training "
                "records too: its metrics flatter the model."
            )
    return LabelledData(parts, reports, shared)


def read_tables(
    entries: str | Sequence[str],
    config: FinetuneDataConfig,
    task: Task[Any],
    domain: Domain,
    report: Report,
    labelled: bool = True,
) -> list[Example]:
    """The records of files, folders and globs, or of a table that comes with the domain."""
    names = [entries] if isinstance(entries, str) else list(entries)
    examples: list[Example] = []
    files = []
    for name in names:
        if name == SAMPLE or name.startswith(f"{SAMPLE}:"):
            examples += _sample(name.partition(":")[2] or task.config.name, domain, report)
        else:
            files += find_tables(name, config.folder, domain)
    if not files:
        return examples
    multilabel = bool(getattr(task.config, "multilabel", False))
    examples += read_examples(files, task.config.name, config, domain, report, labelled=labelled, multilabel=multilabel)
    return examples


def _read(
    entries: str | Sequence[str], config: FinetuneDataConfig, task: Task[Any], domain: Domain
) -> tuple[list[Example], dict[str, Any]]:
    report = Report()
    examples = read_tables(entries, config, task, domain, report)
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


def _with_known_labels(
    examples: list[Example],
    part: str,
    task: Task[Any],
    config: FinetuneDataConfig,
    report: dict[str, Any],
    note: Callable[[str], None],
) -> list[Example]:
    """The records whose labels training has seen."""
    unseen = task.unseen(examples)
    if not unseen:
        return examples
    strange = [example for example in examples if task.unseen([example])]
    what = f"{len(strange):,} {part} records have labels that no training record has: {listed(list(unseen), unseen)}"
    if config.unseen_labels == "error":
        known = ", ".join(task.label_names or [])
        raise DataError(
            f"{what}; the first is {strange[0].source or strange[0].id}. Training has: {known}. Mend the records, list "
            "the labels under task.labels, or set data.unseen_labels to skip."
        )
    note(f"{what}; they are left out.")
    report["unseen_labels"] = dict(unseen)
    left_out = set(map(id, strange))
    return [example for example in examples if id(example) not in left_out]


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
