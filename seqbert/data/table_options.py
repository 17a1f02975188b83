"""What a user says about a labelled table: its format, its columns, and where its labels stand."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, TypeAlias

from seqbert.errors import ConfigError

Format: TypeAlias = Literal["csv", "tsv", "json", "jsonl", "parquet", "columns", "conllu", "squad", "records"]
"""How labelled data is written down."""

Task: TypeAlias = Literal["classification", "regression", "tagging", "span", "choice"]
"""What a record is made for; see :class:`~seqbert.domain.Example`."""


@dataclasses.dataclass
class Columns:
    """Which columns hold what: their names, or their numbers from 0. Null: the usual names are looked for."""

    sequence: str | int | None = None
    """The text or sequence; the question where the task is span, the context where it is choice."""
    pair: str | int | None = None
    """The second text; where the task is span the context, where it is choice what each choice continues."""
    label: str | int | None = None
    """The label; the answer's text, or all answers, where the task is span. In CoNLL-U upos, xpos or another column."""
    id: str | int | None = None
    """The record's name; null: id, idx or index if there is one, else its number from 0."""
    group: str | int | None = None
    """What records are grouped by where a share is held out; it becomes the metadata key "group"."""
    choices: list[str | int] | None = None
    """The choices in order, or the one column that holds a list of them."""
    start: str | int | None = None
    """Where the answer begins in the context, in characters from 0."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for reference in value if isinstance(value, list) else [value]:
                if isinstance(reference, int) and reference < 0:
                    raise ConfigError(f"{field.name} is {reference}; columns are counted from 0.")
        if self.choices == []:
            raise ConfigError("choices is an empty list; name the columns of the choices, or set it to null.")


@dataclasses.dataclass
class TableOptions:
    """How labelled files are read."""

    format: Literal["auto", "csv", "tsv", "json", "jsonl", "parquet", "columns", "conllu", "squad", "records"] = "auto"
    """columns: a word and its label a line, a blank line between sentences. records: the domain's own files.
    auto: by the ending and by what stands in the file."""
    quoted: bool | None = None
    """Whether cells may stand in quotes; null: in CSV they may, in TSV a quote is a character like others."""
    names: list[str] | None = None
    """Names of the columns where a file has no header line; a header that has the columns goes before them."""
    columns: Columns = dataclasses.field(default_factory=Columns)
    """Which columns hold what."""
    cells: Literal["text", "path"] = "text"
    """path: those of sequence are names of files, beside the table, that the domain reads."""
    label_from: Literal["column", "file", "folder", "metadata"] = "column"
    """file: the label is the file's name without its ending. folder: the name of the folder that it is in.
    metadata: what the domain's reader knows of the record."""
    label_key: str | None = None
    """The metadata key that holds the label; null: the record's id, a blank and its description."""
    label_pattern: str | None = None
    """A regular expression; its first group, where it is found in the label's source, is the label."""
    word_pattern: str | None = None
    """In a file of columns, a regular expression whose first group is the word: "^[a-z-]+:(.*)$" for en:Paris."""

    def __post_init__(self) -> None:
        for name in ("label_pattern", "word_pattern"):
            pattern = getattr(self, name)
            if pattern is None:
                continue
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise ConfigError(f"{name} is no regular expression: {error}.") from error
            if not groups:
                raise ConfigError(f"{name} has no group: put parentheses around the part that counts.")
        if self.label_key is not None and self.label_from != "metadata":
            raise ConfigError(f"label_key is read only where label_from is metadata, and it is {self.label_from}.")
        if self.names is not None and len(set(self.names)) < max(1, len(self.names)):
            raise ConfigError("names must be different names, one for each column of the file.")
