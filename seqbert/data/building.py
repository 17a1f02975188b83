"""From files to a corpus: read, train the tokenizer, encode, hold documents out.

Files are cut into groups by their sizes alone; each group becomes one shard, whichever process writes it. So the
corpus is the same for any number of processes, and memory holds one record batch a process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from seqbert.data.corpus import (
    LAYOUT,
    TRAIN,
    VALIDATION,
    Corpus,
    TokenStore,
    open_arrow,
    read_columns,
    write_columns,
)
from seqbert.data.files import InputFile, Inputs, find_inputs
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Report
from seqbert.errors import DataError, SeqbertError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHARDS = 64
"""Most shards that one input is cut into: more than any machine has use for, few enough to open at once."""

BATCH_TOKENS = 2**20
"""Tokens after which a record batch is written: 1 to 4 MB."""

BATCH_CHARACTERS = 2**21
"""Characters that are handed to the tokenizer at once."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and, where it is known, which share of it is done."""


@dataclasses.dataclass(slots=True)
class BuildRequest:
    """What a corpus is made from; everything here, and only this, decides its content.

    Attributes:
        domain: The plugin, with its options.
        data: What stands under ``data:``: files, folders, globs, or "sample".
        validation: The share of tokens to hold out, or what names the held-out files.
        vocab_size: Entries of a new tokenizer; None: the domain's default.
        tokenizer: JSON of a tokenizer to use, or None to train one.
        extend: Add what a new tokenizer would hold to ``tokenizer`` instead of using it as it is.
    """

    domain: Domain
    data: Sequence[str]
    validation: float | str = 0.05
    vocab_size: int | None = None
    tokenizer: str | None = None
    extend: Callable[[str, Tokenizer], str] | None = None


def build_corpus(
    request: BuildRequest, cache: Path, processes: int = 1, progress: Progress = lambda what, share: None
) -> Corpus:
    """The corpus for ``request``: the one in ``cache`` if its inputs and options have not changed, else a new one.

    Raises:
        DataError: if the data is missing, a named file yields nothing, or nothing is left to train on.
    """
    domain = request.domain
    inputs = find_inputs(request.data, domain)
    held_out = None
    if isinstance(request.validation, str):
        held_out = find_inputs([request.validation], domain)
    folder = cache / f"{domain.name}-{_key(request, inputs, held_out)}"
    if (folder / "manifest.json").is_file():
        progress(f"{domain.name}: corpus found in {folder}", None)
        return Corpus(folder)
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=cache))
    try:
        _Builder(request, inputs, held_out, draft, processes, progress).build()
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / "manifest.json").is_file():  # not another run that was quicker
                raise
        return Corpus(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _key(request: BuildRequest, inputs: Inputs, held_out: Inputs | None) -> str:
    domain = request.domain
    described = {
        "layout": LAYOUT,
        "domain": [domain.name, type(domain).__module__, domain.version],
        "options": dataclasses.asdict(domain.options),
        "files": [_fingerprint(file.path) for file in inputs.files],
        "sample": domain.sample().version if inputs.sample else None,
        "validation": [_fingerprint(f.path) for f in held_out.files] if held_out else request.validation,
        "vocab_size": request.vocab_size,
        "tokenizer": request.tokenizer,
        "extend": request.extend is not None,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _fingerprint(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


class _Builder:
    def __init__(
        self,
        request: BuildRequest,
        inputs: Inputs,
        held_out: Inputs | None,
        folder: Path,
        processes: int,
        progress: Progress,
    ) -> None:
        self.request = request
        self.domain = request.domain
        self.inputs = inputs
        self.held_out = held_out
        self.folder = folder
        self.processes = max(1, processes)
        self.progress = progress

    def build(self) -> None:
        groups = _group(self.inputs.files)
        if self.inputs.sample and self.domain.sample().documents is not None:
            groups.append([])  # the group without files is the sample's documents
        first_held_out = len(groups)
        if self.held_out is not None:
            groups += _group(self.held_out.files)
        tokenizer = self._tokenizer(groups[:first_held_out])
        self.domain.use(tokenizer)
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        report = self._encode(groups, tokenizer)
        _Finisher(self, len(groups), None if self.held_out is None else first_held_out, report).finish()

    def _tokenizer(self, groups: list[list[InputFile]]) -> Tokenizer:
        from tokenizers import Tokenizer

        given, extend = self.request.tokenizer, self.request.extend
        if given is not None and extend is None:
            return Tokenizer.from_str(given)
        self.progress(f"{self.domain.name}: making the tokenizer", None)
        segments = (
            segment
            for group in groups
            for document in _documents(self.domain, group, Report())
            for segment in document.segments
        )
        trained = self.domain.tokenizer(segments, self.request.vocab_size)
        _check_tokenizer(trained, self.domain.name)
        if given is None or extend is None:
            return trained
        return Tokenizer.from_str(extend(given, trained))

    def _encode(self, groups: list[list[InputFile]], tokenizer: Tokenizer) -> Report:
        job = _EncodeJob(
            type(self.domain),
            self.domain.options,
            tokenizer.to_str(),
            tokenizer.get_vocab_size(),
            self.folder,
        )
        report = Report()
        for done, part in enumerate(self._run(job, groups), 1):
            report.merge(part)
            share = done / len(groups)
            self.progress(f"{self.domain.name}: {report.yielded:,} documents encoded", share)
        return report

    def _run(self, job: _EncodeJob, groups: list[list[InputFile]]) -> Iterator[Report]:
        tasks = list(enumerate(groups))
        if min(self.processes, len(tasks)) == 1:
            yield from map(job, tasks)
            return
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads do not survive a fork
        with ProcessPoolExecutor(min(self.processes, len(tasks))) as pool:
            yield from pool.map(job, tasks)


def _group(files: Sequence[InputFile]) -> list[list[InputFile]]:
    """Cuts the list of files into at most :data:`SHARDS` neighbouring groups of about equal size in bytes."""
    sizes = np.array([max(1, file.path.stat().st_size) for file in files], np.float64)
    middles = (np.cumsum(sizes) - sizes / 2) / max(1.0, sizes.sum())
    groups: dict[int, list[InputFile]] = {}
    for file, middle in zip(files, middles.tolist(), strict=True):
        groups.setdefault(int(middle * SHARDS), []).append(file)
    return list(groups.values())


def _documents(domain: Domain, group: list[InputFile], report: Report) -> Iterator[Document]:
    """The documents of a group of files, or of the sample where the group is empty.

    A file met in a folder that cannot be read is left out and listed; one that the user named stops the run.
    """
    if not group:
        sample = domain.sample()
        assert sample.documents is not None
        yield from _counted(sample.documents(), report)
        return
    for file in group:
        before = report.yielded
        try:
            yield from _counted(domain.read(file.path, report), report)
        except SeqbertError as error:
            if file.named:
                raise
            report.skipped_files.append((str(file.path), str(error)))
            continue
        except OSError as error:
            raise DataError(f'The file "{file.path}" cannot be read: {error.strerror or error}.') from error
        report.files.append(str(file.path))
        if file.named and report.yielded == before:
            reasons = "; ".join(f"{reason} ({count})" for reason, count in report.skips.items())
            raise DataError(
                f'The file "{file.path}" holds nothing that the domain "{domain.name}" can use'
                f"{': ' + reasons if reasons else ''}."
            )


def _counted(documents: Iterable[Document], report: Report) -> Iterator[Document]:
    for document in documents:
        document.segments = [segment for segment in document.segments if segment]
        if document.segments:
            report.yielded += 1
            yield document
        else:
            report.skipped(document.source or document.id, "empty document")


def _check_tokenizer(tokenizer: Tokenizer, name: str) -> None:
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    assert ids == list(range(len(SPECIAL_TOKENS))), (
        f"the tokenizer of {name} does not begin with {SPECIAL_TOKENS}"
    )


def smallest_integer(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer type that holds every id of a vocabulary.

    >>> smallest_integer(31), smallest_integer(8192), smallest_integer(119_547)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    return np.min_scalar_type(vocab_size - 1)


@dataclasses.dataclass(slots=True)
class _EncodeJob:
    """Reads and encodes one group of files into one shard; runs in any process."""

    domain_type: type[Domain]
    options: Any
    tokenizer_json: str
    vocab_size: int
    folder: Path

    def __call__(self, task: tuple[int, list[InputFile]]) -> Report:
        from tokenizers import Tokenizer

        shard, group = task
        domain = self.domain_type(self.options)
        domain.use(Tokenizer.from_str(self.tokenizer_json))
        report = Report()
        with _ShardWriter(
            self.folder, shard, smallest_integer(self.vocab_size), domain.unit != "token"
        ) as out:
            for documents in _batched(_documents(domain, group, report)):
                segments = [segment for document in documents for segment in document.segments]
                encoded = domain.encode(segments, offsets=False)
                lengths = iter(encoded.lengths.tolist())
                counts = [list(islice(lengths, len(document.segments))) for document in documents]
                starts = None
                if out.has_units:
                    starts = _unit_starts(encoded.units, encoded.lengths, len(encoded.ids))
                out.write(documents, counts, encoded.ids, starts)
        return report


def _batched(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += sum(map(len, document.segments))
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _unit_starts(units: np.ndarray | None, lengths: np.ndarray, tokens: int) -> np.ndarray:
    """Where a masking unit begins: at each change of unit id, and with each text."""
    starts = np.ones(tokens, np.uint8)
    if units is not None and tokens:
        starts[1:] = units[1:] != units[:-1]
        firsts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        starts[firsts[lengths > 0]] = 1
    return starts


DOCUMENT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("metadata", pa.string()),
        ("digest", pa.uint64()),
        ("segments", pa.list_(pa.uint32())),
    ]
)


class _ShardWriter:
    """Writes the tokens and the documents of one shard as they come."""

    def __init__(self, folder: Path, shard: int, dtype: np.dtype[Any], has_units: bool) -> None:
        self.has_units = has_units
        self._dtype = dtype
        fields = [("ids", pa.from_numpy_dtype(dtype))] + ([("unit_start", pa.uint8())] if has_units else [])
        self._schema = pa.schema(fields)
        self._sinks = [
            pa.OSFile(str(folder / f"{kind}-{shard:05d}.arrow"), "wb") for kind in ("tokens", "documents")
        ]
        self._tokens = pa.ipc.new_file(self._sinks[0], self._schema)
        self._documents = pa.ipc.new_file(self._sinks[1], DOCUMENT_SCHEMA)
        self._waiting: list[tuple[np.ndarray, np.ndarray | None]] = []
        self._count = 0

    def __enter__(self) -> _ShardWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._flush()
        for closing in (self._tokens, self._documents, *self._sinks):
            closing.close()

    def write(
        self, documents: list[Document], counts: list[list[int]], ids: np.ndarray, starts: np.ndarray | None
    ) -> None:
        self._documents.write_batch(
            pa.RecordBatch.from_pydict(
                {
                    "id": [document.id for document in documents],
                    "source": [document.source for document in documents],
                    "metadata": [json.dumps(document.metadata, ensure_ascii=False) for document in documents],
                    "digest": [_digest(document) for document in documents],
                    "segments": counts,
                },
                schema=DOCUMENT_SCHEMA,
            )
        )
        self._waiting.append((ids.astype(self._dtype, copy=False), starts))
        self._count += len(ids)
        if self._count >= BATCH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if self._count:
            columns = [np.concatenate([ids for ids, _ in self._waiting])]
            if self.has_units:
                columns.append(np.concatenate([starts for _, starts in self._waiting if starts is not None]))
            self._tokens.write_batch(
                pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=self._schema)
            )
        self._waiting, self._count = [], 0


def _digest(document: Document) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for segment in document.segments:
        digest.update(segment.encode("utf-8", "surrogatepass") + b"\0")
    return int.from_bytes(digest.digest(), "little")


@dataclasses.dataclass(slots=True)
class _DocumentTable:
    """What deciding about the documents needs: a few numbers for each, in the order of the shards."""

    tokens: np.ndarray
    digests: np.ndarray
    groups: np.ndarray
    group_names: list[str]
    shard: np.ndarray


class _Finisher:
    """Decides which documents are held out, and writes where everything stands."""

    def __init__(self, builder: _Builder, shards: int, first_held_out: int | None, report: Report) -> None:
        self.builder = builder
        self.domain = builder.domain
        self.folder = builder.folder
        self.shards = shards
        self.first_held_out = first_held_out
        self.report = report

    def finish(self) -> None:
        table = self._read_documents()
        if not table.tokens.sum():
            skipped = "; ".join(f"{name}: {reason}" for name, reason in self.report.skipped_files[:3])
            raise DataError(
                f'The data of the domain "{self.domain.name}" holds nothing that can be used'
                f"{' (' + skipped + ')' if skipped else ''}."
            )
        kept, cut = self._hold_out(table)
        self._write_splits(table, kept, cut)
        store = TokenStore(self.folder, self.shards)
        counts = self._count_tokens(store)
        (self.folder / "manifest.json").write_text(
            json.dumps(self._manifest(table, store, counts), indent=2, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )

    def _read_documents(self) -> _DocumentTable:
        balance = self.domain.balance
        names: dict[str, int] = {}
        tokens, digests, groups, shard_of = [], [], [], []
        for shard, batch in self._document_batches():
            lengths = batch.column("segments")
            values = lengths.flatten().to_numpy().astype(np.int64)
            offsets = lengths.offsets.to_numpy()
            sums = np.concatenate([[0], np.cumsum(values)])
            tokens.append(sums[offsets[1:] - offsets[0]] - sums[offsets[:-1] - offsets[0]])
            digests.append(batch.column("digest").to_numpy())
            shard_of.append(np.full(batch.num_rows, shard))
            codes = np.zeros(batch.num_rows, np.uint16)
            if balance is not None:
                for row, metadata in enumerate(batch.column("metadata").to_pylist()):
                    name = json.loads(metadata).get(balance.key, "")
                    codes[row] = names.setdefault(name, len(names))
            groups.append(codes)
        return _DocumentTable(
            *(np.concatenate(part) if part else np.zeros(0, np.int64) for part in (tokens, digests, groups)),
            list(names) or [""],
            np.concatenate(shard_of) if shard_of else np.zeros(0, np.int64),
        )

    def _document_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for shard in range(self.shards):
            reader = open_arrow(self.folder / f"documents-{shard:05d}.arrow")
            for number in range(reader.num_record_batches):
                yield shard, reader.get_batch(number)

    def _hold_out(self, table: _DocumentTable) -> tuple[np.ndarray, np.ndarray]:
        """For each document the share of it that is for training: 1, 0, or what is left when its end is held out.

        Whole documents are held out, group by group, chosen by a hash of their content, so that equal documents
        stay on one side. Where documents are too few or too long for that (one genome, one long text a language),
        the end of each of them is held out instead; the second array marks those documents.
        """
        if self.first_held_out is not None:
            return (table.shard < self.first_held_out).astype(np.float64), np.zeros(len(table.tokens), bool)
        share = float(self.builder.request.validation)
        kept, cut = np.ones(len(table.tokens)), np.zeros(len(table.tokens), bool)
        for group in range(len(table.group_names)):
            members = np.flatnonzero(table.groups == group)
            order = members[np.argsort(table.digests[members], kind="stable")]
            wanted = share * table.tokens[members].sum()
            reached = np.cumsum(table.tokens[order])
            out = order[reached <= 1.5 * wanted]
            out = out[: int(np.searchsorted(reached, wanted)) + 1]
            if share and table.tokens[out].sum() < 0.5 * wanted:
                kept[members], cut[members] = 1.0 - share, True
            else:
                kept[out] = 0.0
        return kept, cut

    def _write_splits(self, table: _DocumentTable, kept: np.ndarray, cut: np.ndarray) -> None:
        columns = {part: _SplitColumns(self.folder, part) for part in (TRAIN, VALIDATION)}
        row, base = 0, 0
        for _, batch in self._document_batches():
            for lengths in batch.column("segments"):
                counts = np.asarray(lengths.values.to_numpy(), np.int64)
                offsets = base + np.concatenate([[0], np.cumsum(counts)[:-1]])
                base += int(counts.sum())
                train, held = _cut_document(offsets, counts, float(kept[row]), bool(cut[row]))
                columns[TRAIN].add(row, int(table.groups[row]), *train)
                columns[VALIDATION].add(row, int(table.groups[row]), *held)
                row += 1
        for part in columns.values():
            part.close()

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
        symbols = [0 if token in SPECIAL_TOKENS[2:] else self.domain.symbols(token) for token in tokens]
        symbols[0] = 0
        symbols[1] = 1  # an unknown token hides at least one symbol
        write_columns(self.folder / "vocabulary.arrow", count=counts, symbols=np.asarray(symbols, np.float32))
        return counts

    def _manifest(self, table: _DocumentTable, store: TokenStore, counts: np.ndarray) -> dict[str, Any]:
        domain, vocabulary = self.domain, self.domain.vocabulary
        special = {token: vocabulary.token_to_id(token) for token in SPECIAL_TOKENS}
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
            "shards": self.shards,
            "tokens": len(store),
            "report": self._report(table, counts),
        }

    def _report(self, table: _DocumentTable, counts: np.ndarray) -> dict[str, Any]:
        parts = {}
        for part in (TRAIN, VALIDATION):
            columns = {
                kind: read_columns(self.folder / f"{part}-{kind}.arrow") for kind in ("documents", "segments")
            }
            lengths = np.diff(
                np.append(columns["documents"]["first_segment"], len(columns["segments"]["offset"]))
            )
            parts[part] = {
                "documents": len(lengths),
                "segments": len(columns["segments"]["offset"]),
                "tokens": int(columns["documents"]["tokens"].sum()),
                "documents_with_several_segments": int((lengths > 1).sum()),
            }
        inputs = self.builder.inputs
        unknown = self.domain.vocabulary.token_to_id(SPECIAL_TOKENS[1])
        report = self.report.to_dict()
        report["skipped_files"] += [
            {"file": str(path), "reason": "not a kind of file that this domain knows"}
            for path in inputs.unknown
        ]
        if inputs.sample:
            report["sample"] = self.domain.sample().about
        report |= parts
        report["tokens_per_document"] = _quantiles(table.tokens)
        report["duplicate_documents"] = len(table.digests) - len(np.unique(table.digests))
        report["unknown_share"] = float(counts[unknown] / max(1, counts.sum()))
        report["tokenizer"] = {
            "vocab_size": self.domain.vocabulary.get_vocab_size(),
            "sha256": hashlib.sha256((self.folder / "tokenizer.json").read_bytes()).hexdigest(),
        }
        if self.domain.balance is not None:
            totals = np.bincount(table.groups, table.tokens, minlength=len(table.group_names))
            report["groups"] = dict(zip(table.group_names, totals.astype(int).tolist(), strict=True))
        return report


def _quantiles(values: np.ndarray) -> dict[str, int]:
    points = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
    return {name: int(np.quantile(values, point)) for name, point in points.items()}


def _cut_document(
    offsets: np.ndarray, lengths: np.ndarray, kept: float, cut: bool
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Offsets and lengths of a document's segments for training, and of those held out.

    >>> offsets, lengths = np.array([0, 50]), np.array([50, 50])
    >>> train, held = _cut_document(offsets, lengths, 0.9, True)
    >>> [part.tolist() for part in train], [part.tolist() for part in held]
    ([[0], [50]], [[50], [50]])
    >>> train, held = _cut_document(offsets[:1], lengths[:1], 0.9, True)
    >>> [part.tolist() for part in train], [part.tolist() for part in held]
    ([[0], [45]], [[45], [5]])
    """
    if not cut:
        everything, nothing = (offsets, lengths), (offsets[:0], lengths[:0])
        return (everything, nothing) if kept else (nothing, everything)
    if len(lengths) > 1:
        first = min(
            len(lengths) - 1, max(1, int(np.searchsorted(np.cumsum(lengths), kept * lengths.sum()) + 1))
        )
        return (offsets[:first], lengths[:first]), (offsets[first:], lengths[first:])
    length = int(lengths[0])
    edge = int(length * kept)
    return (offsets, np.array([edge])), (offsets + edge, np.array([length - edge]))


class _SplitColumns:
    """Collects where the documents and segments of one part stand, through files rather than in memory."""

    COLUMNS = {
        "documents": {"first_segment": np.int64, "tokens": np.int64, "row": np.int64, "group": np.uint16},
        "segments": {"offset": np.int64, "length": np.int64},
    }

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._files = {
            (kind, name): open(folder / f"{part}-{kind}-{name}.raw", "wb")  # noqa: SIM115 (closed in close)
            for kind, columns in self.COLUMNS.items()
            for name in columns
        }
        self._segments = 0

    def add(self, row: int, group: int, offsets: np.ndarray, lengths: np.ndarray) -> None:
        """Adds the segments of one document; those without tokens are left out, and so is a document of none."""
        offsets, lengths = offsets[lengths > 0], lengths[lengths > 0]
        if not len(lengths):
            return
        document = {"first_segment": self._segments, "tokens": lengths.sum(), "row": row, "group": group}
        for name, value in document.items():
            self._write("documents", name, value)
        self._write("segments", "offset", offsets)
        self._write("segments", "length", lengths)
        self._segments += len(lengths)

    def close(self) -> None:
        """Turns the collected columns into Arrow files."""
        for file in self._files.values():
            file.close()
        for kind, columns in self.COLUMNS.items():
            arrays = {}
            for name, dtype in columns.items():
                path = Path(self._files[kind, name].name)
                arrays[name] = np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
            write_columns(self._folder / f"{self._part}-{kind}.arrow", **arrays)
        for file in self._files.values():
            os.unlink(file.name)

    def _write(self, kind: str, name: str, values: Any) -> None:
        np.asarray(values, self.COLUMNS[kind][name]).tofile(self._files[kind, name])
