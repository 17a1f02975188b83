"""From files to a corpus: read, train the tokenizer, encode, hold documents out.

Files are cut into groups by their sizes alone; each group becomes one shard, whichever process writes it. So the
corpus is the same for any number of processes, and memory holds one record batch a process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from seqbert.data.corpus import LAYOUT, Corpus
from seqbert.data.files import InputFile, Inputs, find_inputs
from seqbert.data.finishing import Draft, finish_corpus
from seqbert.data.vocabulary import missing_special_tokens
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
        inputs = inputs.without(held_out)
    folder = cache / f"{domain.name}-{_key(request, inputs, held_out)}"
    if (folder / "manifest.json").is_file():
        progress(f"{domain.name}: corpus found in {folder}", None)
        return Corpus(folder)
    draft = folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=cache))
        _Builder(request, inputs, held_out, draft, processes, progress).build()
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / "manifest.json").is_file():  # not another run that was quicker
                raise
        return Corpus(folder)
    except OSError as error:
        raise DataError(
            f'The corpus cannot be written to "{cache}": {error.strerror or error}. Make room there, or name another '
            "place by run.corpus_dir or $SEQBERT_CACHE."
        ) from error
    except BrokenProcessPool as error:
        raise DataError(
            f'A process that read data of the domain "{domain.name}" was ended from outside, as happens when memory '
            "runs out. Try run.workers 1."
        ) from error
    finally:
        if draft != folder:
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
        groups = self._groups(self.inputs)
        first_held_out = len(groups)
        if self.held_out is not None:
            groups += self._groups(self.held_out)
        tokenizer = self._tokenizer(groups[:first_held_out])
        self.domain.use(tokenizer)
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        report = self._encode(groups, tokenizer)
        finish_corpus(
            Draft(
                folder=self.folder,
                domain=self.domain,
                shards=len(groups),
                first_held_out=None if self.held_out is None else first_held_out,
                share=0.0 if isinstance(self.request.validation, str) else self.request.validation,
                inputs=self.inputs,
                report=report,
            )
        )

    def _groups(self, inputs: Inputs) -> list[list[InputFile]]:
        groups = _group(inputs.files)
        if inputs.sample and self.domain.sample().documents is not None:
            groups.append([])  # the group without files is the sample's documents
        return groups

    def _tokenizer(self, groups: list[list[InputFile]]) -> Tokenizer:
        from tokenizers import Tokenizer

        given, extend = self.request.tokenizer, self.request.extend
        if given is not None:
            tokenizer = Tokenizer.from_str(given)
            _check_special_tokens(tokenizer, self.domain.name)
            if extend is None:
                return tokenizer
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
        with ProcessPoolExecutor(min(self.processes, len(tasks)), initializer=_begin_worker) as pool:
            others = set(multiprocessing.active_children())
            try:
                yield from pool.map(job, tasks)
            except BaseException:  # such as Ctrl-C: nobody waits for what the workers are at
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork


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
        except (SeqbertError, OSError) as error:
            if isinstance(error, OSError):
                error = DataError(f'The file "{file.path}" cannot be read: {error.strerror or error}.')
            if file.named:
                raise error from None
            read = report.yielded - before
            kept = f"cut short after {read:,} records, which are kept: " if read else ""
            report.skipped_files.append((str(file.path), kept + str(error)))
            continue
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


def _check_special_tokens(tokenizer: Tokenizer, name: str) -> None:
    if missing := missing_special_tokens(tokenizer):
        raise DataError(
            f'The tokenizer that was given for the domain "{name}" has no {", ".join(missing)}, and every vocabulary '
            f"needs {', '.join(SPECIAL_TOKENS)}. Add them to it, or leave it out so that a new one is made."
        )


def _check_tokenizer(tokenizer: Tokenizer, name: str) -> None:
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    assert ids == list(range(len(SPECIAL_TOKENS))), f"the tokenizer of {name} does not begin with {SPECIAL_TOKENS}"


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
        with _ShardWriter(self.folder, shard, smallest_integer(self.vocab_size), domain.unit != "token") as out:
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
        self._sinks = [pa.OSFile(str(folder / f"{kind}-{shard:05d}.arrow"), "wb") for kind in ("tokens", "documents")]
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
