"""Figures by group, such as the language: of the documents in the data report, and of the targets in an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqbert.data.corpus import Corpus, Split, TokenStore
from seqbert.data.packing import PackedBatch, Target
from seqbert.domain import Domain


def group_report(
    domain: Domain, store: TokenStore, tokens: np.ndarray, groups: np.ndarray, names: Sequence[str], symbols: np.ndarray
) -> dict[str, dict[str, Any]]:
    """What the documents of each group come to, and how finely the tokenizer cuts them.

    Words are what the tokenizer's pre-tokenizer takes for them, punctuation marks among them, as tokens a word
    ("fertility") are counted by Rust et al. 2021, section 3.1. They are None where the domain's masking unit is no
    word, and in groups that write no blanks between words.

    Args:
        domain: The plugin.
        store: The tokens of all documents, end to end.
        tokens: Tokens of each document, ``[documents]``.
        groups: Number of the group of each document, ``[documents]``.
        names: The groups.
        symbols: Symbols that each token id stands for, ``[vocabulary]``; unknown tokens stand for none.

    Returns:
        For each group ``documents``, ``tokens``, ``symbols``, ``words``, ``tokens_per_word`` and ``tokens_per_symbol``.
    """
    count = len(names)
    documents = np.bincount(groups, minlength=count)
    total = np.bincount(groups, tokens, minlength=count).astype(np.int64)
    found, words = np.zeros(count), np.zeros(count)
    has_words = domain.unit == "word"
    edges = np.concatenate([[0], np.cumsum(tokens)])
    for start, ids, unit_starts in store.columns(has_words):
        found += _by_group(symbols[ids], start, edges, groups, count)
        if unit_starts is not None:
            words += _by_group(unit_starts, start, edges, groups, count)
    rows = {}
    for number, name in enumerate(names):
        counted = has_words and domain.separates_words(name)
        row: dict[str, Any] = {
            "documents": int(documents[number]),
            "tokens": int(total[number]),
            "symbols": int(found[number]),
            "words": int(words[number]) if counted else None,
        }
        row["tokens_per_word"] = _ratio(row["tokens"], row["words"])
        row["tokens_per_symbol"] = _ratio(row["tokens"], row["symbols"])
        rows[name] = row
    return rows


def _by_group(values: np.ndarray, start: int, edges: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Sums over the documents of each group, ``[groups]``, of values of the tokens from place ``start`` on."""
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, start + len(values), side="left"))
    inside = np.clip(edges[first : last + 1], start, start + len(values)) - start
    running = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.bincount(groups[first:last], np.diff(running[inside]), minlength=count)


def _ratio(value: int, by: int | None) -> float | None:
    return float(f"{value / by:.6g}") if by else None


@dataclasses.dataclass(slots=True)
class Grouping:
    """Which group each target of an evaluation is of.

    Attributes:
        names: The groups.
        rows: Rows of the corpus' documents that are in the part, rising, ``[documents]``.
        group: Number of the group of each, ``[documents]``.
    """

    names: list[str]
    rows: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, split: Split) -> Grouping | None:
        """The groups of a part; None where the domain names none."""
        if corpus.manifest["balance"] is None:
            return None
        order = np.argsort(split.row, kind="stable")  # documents that are parted come after whole ones
        return cls(list(corpus.manifest["groups"]), split.row[order], split.group[order])

    def of_targets(self, batch: PackedBatch, target: Target) -> np.ndarray:
        """Number of the group of each target of a batch on the host, ``[targets]``."""
        row = batch.record.numpy()
        group: np.ndarray = self.group[np.searchsorted(self.rows, row)].astype(np.int64)
        if target.of_sequences:
            return np.asarray(group[target.index.numpy()])
        return np.asarray(group[np.searchsorted(batch.cu_seqlens.numpy(), target.index.numpy(), side="right") - 1])
