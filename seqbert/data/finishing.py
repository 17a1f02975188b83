"""The last part of building a corpus: which documents are held out, where everything stands, and the data report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from seqbert.data.corpus import LAYOUT, TRAIN, VALIDATION, TokenStore, open_arrow, read_columns, write_columns
from seqbert.data.files import Inputs
from seqbert.data.group_figures import group_report
from seqbert.data.sampling import PERIOD
from seqbert.data.similarity import Sequences, connected, scrambled
from seqbert.data.ties import Grouping, SplitConfig, Ties
from seqbert.domain import SPECIAL_TOKENS, Domain, Report
from seqbert.errors import DataError


@dataclasses.dataclass(slots=True)
class Draft:
    """A corpus whose shards are written and whose documents are not yet divided.

    Attributes:
        folder: Where its shards lie.
        domain: The plugin, with its tokenizer.
        shards: Number of shards.
        first_held_out: The shard from which on all documents are held out; None where a share of all is.
        share: The share of tokens to hold out.
        inputs: The files it was made from.
        report: What became of their records.
        split: What stays on one side.
    """

    folder: Path
    domain: Domain
    shards: int
    first_held_out: int | None
    share: float
    inputs: Inputs
    report: Report
    split: SplitConfig


def finish_corpus(draft: Draft) -> None:
    """Divides the documents, and writes the manifest, without which a folder is no corpus.

    Raises:
        DataError: if there is nothing to train on, or the groups that stay together leave nothing to hold out.
    """
    _Finisher(draft).finish()


def nothing_usable(domain: Domain, report: Report) -> DataError:
    """The error that is due where no record can be used, with the reasons for the first files that were left out."""
    skipped = "; ".join(f"{name}: {reason}" for name, reason in report.skipped_files[:3])
    return DataError(
        f'The data of the domain "{domain.name}" holds nothing that can be used{f" ({skipped})" if skipped else ""}.'
    )


@dataclasses.dataclass(slots=True)
class _DocumentTable:
    """What deciding about the documents needs: a few numbers for each, in the order of the shards."""

    tokens: np.ndarray
    digests: np.ndarray
    groups: np.ndarray
    group_names: list[str]
    shard: np.ndarray
    ties: Ties | None


class _Finisher:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.domain = draft.domain
        self.folder = draft.folder

    def finish(self) -> None:
        table = self._read_documents()
        if not table.tokens.sum():
            raise nothing_usable(self.domain, self.draft.report)
        kept, cut = self._hold_out(table)
        self._write_splits(table, kept, cut)
        store = TokenStore(self.folder, self.draft.shards)
        counts = self._count_tokens(store)
        (self.folder / "manifest.json").write_text(
            json.dumps(self._manifest(table, store, counts, kept, cut), indent=2, ensure_ascii=False) + "\n",
            encoding="utf-8",
            errors="backslashreplace",  # names of files that are not UTF-8, as JSON escapes them
        )

    def _read_documents(self) -> _DocumentTable:
        balance = self.domain.balance
        names: dict[str, int] = {}
        tokens: list[np.ndarray] = []
        digests: list[np.ndarray] = []
        groups: list[np.ndarray] = []
        shard_of: list[np.ndarray] = []
        split = self.draft.split
        grouping = None
        if split.by is not None and split.alike is None:
            grouping = Grouping(split.by, f"domains.{self.domain.name}.split.by")
        for shard, batch in self._document_batches():
            lengths = batch.column("segments")
            values = lengths.flatten().to_numpy().astype(np.int64)
            offsets = lengths.offsets.to_numpy()
            sums = np.concatenate([[0], np.cumsum(values)])
            tokens.append(sums[offsets[1:] - offsets[0]] - sums[offsets[:-1] - offsets[0]])
            digests.append(batch.column("digest").to_numpy())
            shard_of.append(np.full(batch.num_rows, shard))
            if grouping is not None:
                for name, metadata in zip(batch.column("id"), batch.column("metadata"), strict=True):
                    grouping.add(name.as_py(), json.loads(metadata.as_py()))
            codes = np.zeros(batch.num_rows, np.uint32)
            if balance is not None:
                for row, metadata in enumerate(batch.column("metadata").to_pylist()):
                    name = json.loads(metadata).get(balance.key, "")
                    codes[row] = names.setdefault(name, len(names))
            if len(names) > PERIOD:
                raise DataError(
                    f'The documents of the domain "{self.domain.name}" have more than {PERIOD:,} values of '
                    f'"{balance.key if balance else ""}", too many to draw each of them in proportion.'
                )
            groups.append(codes)
        nothing = np.zeros(0, np.int64)
        return _DocumentTable(
            tokens=np.concatenate([nothing, *tokens]),
            digests=np.concatenate([nothing.astype(np.uint64), *digests]),
            groups=np.concatenate([nothing.astype(np.uint32), *groups]).astype(np.uint16),
            group_names=list(names) or [""],
            shard=np.concatenate([nothing, *shard_of]),
            ties=self._alike() if grouping is None else grouping.ties(),
        )

    def _alike(self) -> Ties | None:
        """The documents that are alike, where the split asks for that."""
        alike = self.draft.split.alike
        if alike is None:
            return None
        store, row, base = TokenStore(self.folder, self.draft.shards), 0, 0
        has_units = self.domain.unit != "token"
        with Sequences(self.domain, self.folder) as sequences:
            for _, batch in self._document_batches():
                for lengths in batch.column("segments").to_pylist():
                    for length in lengths:
                        units = np.cumsum(store.unit_starts(base, base + length), dtype=np.int32) if has_units else None
                        sequences.add(row, store.ids(base, base + length), units)
                        base += length
                    row += 1
            return Ties.of(sequences.clusters(row, alike), alike)

    def _document_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for shard in range(self.draft.shards):
            reader = open_arrow(self.folder / f"documents-{shard:05d}.arrow")
            for number in range(reader.num_record_batches):
                yield shard, reader.get_batch(number)

    def _hold_out(self, table: _DocumentTable) -> tuple[np.ndarray, np.ndarray]:
        """For each document the share of it that is for training: 1, 0, or what is left when its end is held out.

        Whole documents are held out, group by group, chosen by a hash of their content, so that equal documents
        stay on one side, and with them what the split ties together. A cluster that is larger than half of what is
        to be held out stays in training. Where documents are too few or too long for that (one genome, one long text
        a language), the end of each of them is held out instead; the second array marks those documents. Where the
        split ties documents together there is no such way out: their ends are like the beginnings of others.
        """
        if self.draft.first_held_out is not None:
            return (table.shard < self.draft.first_held_out).astype(np.float64), np.zeros(len(table.tokens), bool)
        share = self.draft.share
        kept, cut = np.ones(len(table.tokens)), np.zeros(len(table.tokens), bool)
        if not share:
            return kept, cut
        cluster = _clusters(table)
        held = np.zeros(len(table.tokens), bool)  # by cluster
        wanted = share * np.bincount(table.groups, table.tokens, minlength=len(table.group_names))
        cell, of_cell = np.unique(cluster * len(table.group_names) + table.groups, return_inverse=True)
        sizes = np.bincount(of_cell, table.tokens)  # tokens of each cluster in each group
        large = np.zeros(len(table.tokens), bool)
        np.logical_or.at(large, cell // len(table.group_names), sizes > wanted[cell % len(table.group_names)] / 2)
        for group in range(len(table.group_names)):
            own = np.flatnonzero(cell % len(table.group_names) == group)  # in the order of the hash
            clusters = cell[own] // len(table.group_names)
            already = sizes[own[held[clusters]]].sum()
            small = own[~large[clusters] & ~held[clusters]]
            chosen = small[: int(np.searchsorted(np.cumsum(sizes[small]) + already, wanted[group])) + 1]
            if already >= wanted[group]:
                continue
            if table.ties is None and already + sizes[chosen].sum() < wanted[group] / 2:
                members = np.flatnonzero((table.groups == group) & ~held[cluster])
                kept[members], cut[members] = 1.0 - share, True
            else:
                held[cell[chosen] // len(table.group_names)] = True
        kept[held[cluster]], cut[held[cluster]] = 0.0, False
        if table.ties is not None and table.tokens[kept == 0].sum() < wanted.sum() / 2:
            raise self._indivisible(table, cluster)
        return kept, cut

    def _indivisible(self, table: _DocumentTable, cluster: np.ndarray) -> DataError:
        largest = np.bincount(cluster, table.tokens).max() / table.tokens.sum()
        return DataError(
            f'No {self.draft.share:.1%} of the data of the domain "{self.domain.name}" can be held out in whole '
            f"groups: {len(np.unique(cluster)):,} groups were found by {table.ties.by if table.ties else ''}, and the "
            f"largest has {largest:.0%} of the tokens. Hold out a larger share, name files under "
            f"domains.{self.domain.name}.validation, or split by something else."
        )

    def _write_splits(self, table: _DocumentTable, kept: np.ndarray, cut: np.ndarray) -> None:
        parts = {part: _SplitColumns(self.folder, part) for part in (TRAIN, VALIDATION)}
        row, base = 0, 0
        for _, batch in self._document_batches():
            lists = batch.column("segments")
            lengths = lists.flatten().to_numpy().astype(np.int64)
            offsets = base + np.cumsum(lengths) - lengths
            base += int(lengths.sum())
            edges = lists.offsets.to_numpy() - lists.offsets[0].as_py()
            rows = np.arange(row, row + batch.num_rows)
            row += batch.num_rows
            for part, wanted in ((TRAIN, kept[rows] == 1), (VALIDATION, kept[rows] == 0)):
                whole = np.repeat(wanted & ~cut[rows], np.diff(edges))
                owner = np.repeat(rows, np.diff(edges))
                parts[part].add(owner[whole], table.groups[owner[whole]], offsets[whole], lengths[whole])
            for place in np.flatnonzero(cut[rows]):
                segments = slice(edges[place], edges[place + 1])
                divided = _cut_document(offsets[segments], lengths[segments], float(kept[rows[place]]))
                for part, (starts, counts) in zip((TRAIN, VALIDATION), divided, strict=True):
                    owner = np.full(len(starts), rows[place])
                    parts[part].add(owner, table.groups[owner], starts, counts)
        for columns in parts.values():
            columns.close()

    def _count_tokens(self, store: TokenStore) -> np.ndarray:
        """How often each token id stands in the training part; writes ``vocabulary.arrow``."""
        vocabulary = self.domain.vocabulary
        size = vocabulary.get_vocab_size()
        counts = np.zeros(size, np.int64)
        for ids in store.batches():
            counts += np.bincount(ids, minlength=size)
        held_out = read_columns(self.folder / f"{VALIDATION}-segments.arrow")
        for offset, length in zip(held_out["offset"], held_out["length"], strict=True):
            ids = store.ids(int(offset), int(offset + length))
            counts -= np.bincount(ids, minlength=size)
        tokens = [vocabulary.id_to_token(number) or "" for number in range(size)]
        symbols = [0 if token in SPECIAL_TOKENS else self.domain.symbols(token) for token in tokens]
        write_columns(self.folder / "vocabulary.arrow", count=counts, symbols=np.asarray(symbols, np.float32))
        return counts

    def _manifest(
        self, table: _DocumentTable, store: TokenStore, counts: np.ndarray, kept: np.ndarray, cut: np.ndarray
    ) -> dict[str, Any]:
        domain, vocabulary = self.domain, self.domain.vocabulary
        special = {token: vocabulary.token_to_id(token) or 0 for token in SPECIAL_TOKENS}
        added = vocabulary.get_added_tokens_decoder()
        special_ids = sorted({*special.values(), *(i for i, token in added.items() if token.special)})
        return {
            "layout": LAYOUT,
            "domain": domain.name,
            "domain_version": domain.version,
            "options": dataclasses.asdict(domain.options),
            "unit": domain.unit,
            "overlap": domain.overlap,
            "symbol": domain.symbol,
            "pairs": domain.pairs,
            "balance": None if domain.balance is None else dataclasses.asdict(domain.balance),
            "groups": table.group_names,
            "vocab_size": vocabulary.get_vocab_size(),
            "special_ids": special,
            "all_special_ids": special_ids,
            "shards": self.draft.shards,
            "tokens": len(store),
            "content": hashlib.sha256(table.digests.tobytes() + kept.tobytes()).hexdigest(),
            "report": self._report(table, store, counts, kept, cut),
        }

    def _report(
        self, table: _DocumentTable, store: TokenStore, counts: np.ndarray, kept: np.ndarray, cut: np.ndarray
    ) -> dict[str, Any]:
        parts = {}
        for part in (TRAIN, VALIDATION):
            columns = {kind: read_columns(self.folder / f"{part}-{kind}.arrow") for kind in ("documents", "segments")}
            lengths = np.diff(np.append(columns["documents"]["first_segment"], len(columns["segments"]["offset"])))
            parts[part] = {
                "documents": len(lengths),
                "segments": len(columns["segments"]["offset"]),
                "tokens": int(columns["documents"]["tokens"].sum()),
                "documents_with_several_segments": int((lengths > 1).sum()),
            }
        inputs = self.draft.inputs
        unknown = self.domain.vocabulary.token_to_id(SPECIAL_TOKENS[1])
        report = self.draft.report.to_dict()
        report["skipped_files"] += [
            {"file": str(path), "reason": "not a kind of file that this domain knows"} for path in inputs.unknown
        ]
        if inputs.sample:
            report["sample"] = self.domain.sample().about
        report |= parts
        report["held_out"] = {
            "whole_documents": int((kept == 0).sum()),
            "ends_of_documents": int(cut.sum()),
        }
        report["tokens_per_document"] = _quantiles(table.tokens)
        report["duplicate_documents"] = len(table.digests) - len(np.unique(table.digests))
        report["unknown_share"] = float(counts[unknown] / max(1, counts.sum()))
        report["tokenizer"] = {
            "vocab_size": self.domain.vocabulary.get_vocab_size(),
            "sha256": hashlib.sha256((self.folder / "tokenizer.json").read_bytes()).hexdigest(),
        }
        report["split"] = {"by": None}
        if table.ties is not None:
            held_out = kept == 0
            report["split"] |= table.ties.report(held_out if held_out.any() else None)
        if kinds := self.domain.token_kinds():
            report["tokenizer"]["kinds"] = _shares(kinds, counts)
        if self.domain.balance is not None:
            symbols = read_columns(self.folder / "vocabulary.arrow")["symbols"]
            report["groups"] = group_report(self.domain, store, table.tokens, table.groups, table.group_names, symbols)
        return report


def _clusters(table: _DocumentTable) -> np.ndarray:
    """The cluster of each document: equal ones and those that are tied together, numbered in the order of a hash."""
    if table.ties is None:
        _, content = np.unique(table.digests, return_inverse=True)
        return content
    documents = np.arange(len(table.digests))
    pairs = []
    for labels, of in ((table.digests, documents), (table.ties.labels, np.flatnonzero(table.ties.labels >= 0))):
        _, first, number = np.unique(labels[of], return_index=True, return_inverse=True)
        pairs.append(np.stack([of, of[first[number]]], 1))
    roots = connected(len(documents), np.concatenate(pairs))
    least, most = table.digests.copy(), table.digests.copy()
    np.minimum.at(least, roots, table.digests)
    np.maximum.at(most, roots, table.digests)
    # The least of many numbers is a small one: without another draw large clusters would always come first.
    drawn = np.where(least == most, least, scrambled(least))
    _, number = np.unique(drawn[roots], return_inverse=True)
    return number


def _shares(kinds: Sequence[str], counts: np.ndarray) -> dict[str, dict[str, float]]:
    """Of each kind of tokens how many entries of the vocabulary it has and how many tokens in training, and shares.

    >>> _shares(["Latin", "Han", "Latin"], np.array([6, 1, 3]))["Latin"]
    {'entries': 2, 'share_of_entries': 0.667, 'tokens': 9, 'share_of_tokens': 0.9}
    """
    entries, tokens = Counter(kinds), Counter[str]()
    for kind, count in zip(kinds, counts.tolist(), strict=True):
        tokens[kind] += count
    return {
        kind: {
            "entries": number,
            "share_of_entries": round(number / len(kinds), 3),
            "tokens": tokens[kind],
            "share_of_tokens": round(tokens[kind] / max(1, tokens.total()), 3),
        }
        for kind, number in entries.most_common()
    }


def _quantiles(values: np.ndarray) -> dict[str, int]:
    points = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
    return {name: int(np.quantile(values, point)) for name, point in points.items()}


def _cut_document(
    offsets: np.ndarray, lengths: np.ndarray, kept: float
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Offsets and lengths of a document's segments for training, and of those at its end that are held out.

    >>> offsets, lengths = np.array([0, 50]), np.array([50, 50])
    >>> train, held = _cut_document(offsets, lengths, 0.9)
    >>> [part.tolist() for part in train], [part.tolist() for part in held]
    ([[0, 50], [50, 40]], [[90], [10]])
    >>> train, held = _cut_document(offsets, np.array([50, 5]), 0.9)
    >>> [part.tolist() for part in train], [part.tolist() for part in held]
    ([[0], [50]], [[50], [5]])
    """
    edge = round(kept * int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    crossing = int(np.searchsorted(starts, edge, side="right")) - 1
    if crossing and lengths[crossing] <= (lengths.sum() - edge) / 2:
        edge = int(starts[crossing])  # a short segment is not worth cutting
    before = np.clip(edge - starts, 0, lengths)
    return (offsets[before > 0], before[before > 0]), (
        (offsets + before)[before < lengths],
        (lengths - before)[before < lengths],
    )


class _SplitColumns:
    """Collects where the documents and segments of one part stand, through files rather than in memory."""

    COLUMNS: ClassVar[dict[str, dict[str, type]]] = {
        "documents": {"first_segment": np.int64, "tokens": np.int64, "row": np.int64, "group": np.uint16},
        "segments": {"offset": np.int64, "length": np.int64},
    }

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._files: dict[tuple[str, str], BinaryIO] = {
            (kind, name): open(self._raw(kind, name), "wb")  # noqa: SIM115 (closed in close)
            for kind, columns in self.COLUMNS.items()
            for name in columns
        }
        self._segments = 0

    def add(self, row: np.ndarray, group: np.ndarray, offset: np.ndarray, length: np.ndarray) -> None:
        """Adds whole documents by their segments, each array ``[segments]``; segments without tokens are left out."""
        row, group, offset, length = (column[length > 0] for column in (row, group, offset, length))
        if not len(row):
            return
        first = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
        self._write("documents", first_segment=self._segments + first, row=row[first], group=group[first])
        self._write("documents", tokens=np.add.reduceat(length, first))
        self._write("segments", offset=offset, length=length)
        self._segments += len(row)

    def close(self) -> None:
        """Turns the collected columns into Arrow files."""
        for file in self._files.values():
            file.close()
        for kind, columns in self.COLUMNS.items():
            arrays = {}
            for name, dtype in columns.items():
                raw = self._raw(kind, name)
                arrays[name] = np.memmap(raw, dtype, "r") if raw.stat().st_size else np.zeros(0, dtype)
            write_columns(self._folder / f"{self._part}-{kind}.arrow", **arrays)
            del arrays  # a file that is mapped cannot be removed from NFS
            for name in columns:
                self._raw(kind, name).unlink()

    def _write(self, kind: str, **columns: np.ndarray) -> None:
        for name, values in columns.items():
            # Not tofile, whose errors do not say that the disk is full.
            self._files[kind, name].write(values.astype(self.COLUMNS[kind][name]).data)

    def _raw(self, kind: str, name: str) -> Path:
        return self._folder / f"{self._part}-{kind}-{name}.raw"
