"""One group of files read and encoded into one shard, in any process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqbert.data.compressed import open_decompressed
from seqbert.data.content import describe
from seqbert.data.drafts import SCAFFOLD
from seqbert.data.files import InputFile
from seqbert.domain import Document, Domain, Encoded, Report
from seqbert.errors import DataError, SeqbertError

BATCH_TOKENS = 2**20
"""Tokens after which a record batch is written: 1 to 4 MB."""

_HEAD = 2**12

BATCH_CHARACTERS = 2**21
"""Characters that are handed to the tokenizer at once."""

LONG_SEGMENT = 2**23
"""A document with a segment of more characters is encoded by itself, and by parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileGroup:
    """A group of files, and the number of the shard that they become; no files: the documents of the sample."""

    shard: int
    files: list[InputFile]


class Place:
    """Where in the data the process stands that makes a shard; on disk, so that it is known when the process dies.

    Before it stand the records that were read and skipped so far, for whoever waits.
    """

    def __init__(self, folder: Path, shard: int, report: Report) -> None:
        self._file = _place_file(folder, shard).open("wb", buffering=0)
        self._report = report

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def is_at(self, what: str) -> None:
        """Notes what is being done, in words that go on from "while it was"; a full disk is not its business."""
        # One write a note: a kill leaves it whole. What remains of a longer one before it stands after the line break.
        text = f"{self._report.yielded} {self._report.skipped_records} " + what.replace("\n", " ") + "\n"
        try:
            self._file.seek(0)
            self._file.write(text.encode("utf-8", "backslashreplace"))
        except OSError:
            pass


def last_place(folder: Path, shard: int) -> str:
    """The last note of a shard's :class:`Place`; empty where its process had not come to one."""
    return _last_note(folder, shard)[2]


def last_counts(folder: Path, shard: int) -> tuple[int, int]:
    """How many records of a shard were read and skipped when its :class:`Place` was last noted."""
    read, skipped, _ = _last_note(folder, shard)
    return int(read or 0), int(skipped or 0)


def _last_note(folder: Path, shard: int) -> tuple[str, str, str]:
    try:
        line = _place_file(folder, shard).read_bytes().partition(b"\n")[0].decode("utf-8")
    except FileNotFoundError:
        return "", "", ""
    read, _, rest = line.partition(" ")
    skipped, _, what = rest.partition(" ")
    return read, skipped, what


def read_report(folder: Path, shard: int) -> Report:
    """What became of the records of a shard that is made."""
    return Report.from_json(_report_file(folder, shard).read_text(encoding="utf-8"))


def _place_file(folder: Path, shard: int) -> Path:
    return folder / SCAFFOLD / f"place-{shard:05d}"


def _report_file(folder: Path, shard: int) -> Path:
    return folder / SCAFFOLD / f"report-{shard:05d}.json"


class PluginError(DataError):
    """An exception out of a plugin that says nothing about the data: a fault of the plugin, met at one record."""

    @classmethod
    def of(cls, domain: Domain, what: str, error: Exception) -> PluginError:
        """What the user is told: what the plugin was doing, and what it raised."""
        if isinstance(error, MemoryError):
            return cls(f'Memory ran out while the plugin of the domain "{domain.name}" was {what}. Try run.workers 1.')
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return cls(
            f'The plugin of the domain "{domain.name}" failed while {what}: {said[:500]}. The fault is the plugin\'s: '
            "tell its author (--debug shows where in its code it is), or leave that record out."
        )


def read_documents(
    domain: Domain, files: Sequence[InputFile], report: Report, note: Callable[[str], None] = lambda what: None
) -> Iterator[Document]:
    """The documents of a group of files, or of the sample where the group is empty.

    A file met in a folder that cannot be read is left out and listed, unless the report is strict; one that the user
    named stops the run. What
    is being read is told to ``note``.

    Raises:
        DataError: A named file cannot be read or yields nothing.
        PluginError: The plugin raised what is no error of the data.
    """
    if not files:
        sample = domain.sample()
        assert sample.documents is not None
        try:
            yield from _documents(domain, "its sample", sample.documents, report, note)
        except OSError as error:
            raise DataError(
                f'The sample of the domain "{domain.name}" cannot be read: {error.strerror or error}.'
            ) from error
        return
    for file in files:
        before, skipped_before, skips_before = report.yielded, report.skipped_records, report.skips.copy()
        report.place = str(file.path)
        read = partial(domain.read, file.path, report)
        try:
            yield from _documents(domain, f'"{file.path}"', read, report, note)
        except PluginError:
            raise
        except (SeqbertError, OSError) as error:
            if isinstance(error, OSError):
                error = DataError(f'The file "{file.path}" cannot be read: {error.strerror or error}.')
            if file.named or report.strict:
                raise error from None
            count = report.yielded - before
            kept = f"cut short after {count:,} records, which are kept: " if count else ""
            report.skipped_files.append((str(file.path), kept + str(error)))
            continue
        if report.yielded == before and (file.named or report.skipped_records == skipped_before):
            reasons = "; ".join(f"{reason} ({count})" for reason, count in (report.skips - skips_before).items())
            if report.skipped_records == skipped_before:
                reasons = f"it looks like {describe(_head(file.path))}"
            problem = f'The file "{file.path}" holds nothing that the domain "{domain.name}" can use: {reasons}.'
            if file.named or report.strict:
                raise DataError(problem)
            report.skipped_files.append((str(file.path), problem))
            continue
        report.files.append(str(file.path))


def _head(path: Path) -> bytes:
    with open_decompressed(path) as file:
        return file.read(_HEAD)


def _documents(
    domain: Domain,
    name: str,
    read: Callable[[], Iterable[Document]],
    report: Report,
    note: Callable[[str], None],
) -> Iterator[Document]:
    """The documents that are not empty, counted, with a note of each and of the place where the plugin fails."""
    doing = f"reading the first record of {name}"
    note(doing)
    try:
        for document in read():
            doing = f"reading {name} after the record {_name(document)}"
            note(doing)
            document.segments = [segment for segment in document.segments if segment]
            if document.segments:
                report.yielded += 1
                yield document
            else:
                report.skipped(document.source or document.id, "empty document")
    except (SeqbertError, OSError):
        raise
    except Exception as error:
        raise PluginError.of(domain, doing, error) from error


def _name(document: Document) -> str:
    return f'"{document.source or document.id}"'


def smallest_integer(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer type that holds every id of a vocabulary.

    >>> smallest_integer(31), smallest_integer(8192), smallest_integer(119_547)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    return np.min_scalar_type(vocab_size - 1)


@dataclasses.dataclass(slots=True)
class MakeShard:
    """Reads and encodes one group of files into one shard, and writes beside it what became of the records.

    Attributes:
        domain_type: The plugin's class.
        options: Its options.
        tokenizer: The tokenizer, as JSON.
        folder: The draft of the corpus.
        strict: Make each record that is skipped, cut, repaired or mapped an error.
    """

    domain_type: type[Domain]
    options: Any
    tokenizer: str
    folder: Path
    strict: bool = False

    def __call__(self, group: FileGroup) -> None:
        """Makes the shard.

        Raises:
            DataError: as :func:`read_documents`, or if a record cannot be encoded.
            OSError: if the shard cannot be written.
        """
        from tokenizers import Tokenizer

        domain = self.domain_type(self.options)
        domain.use(Tokenizer.from_str(self.tokenizer))
        report = Report(self.strict)
        has_units = domain.unit != "token"
        dtype = smallest_integer(domain.vocabulary.get_vocab_size())
        with (
            Place(self.folder, group.shard, report) as place,
            _ShardWriter(self.folder, group.shard, dtype, has_units) as out,
        ):
            for documents in _batched(read_documents(domain, group.files, report, place.is_at)):
                place.is_at(f"encoding the records from {_name(documents[0])} to {_name(documents[-1])}")
                for encoded in _encode(domain, documents):
                    out.write(encoded)
                for document in documents:
                    document.segments.clear()  # or they would be held while the next are read
            place.is_at("finishing the shard")
        _report_file(self.folder, group.shard).write_text(report.to_json(), encoding="utf-8")


def _batched(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        if batch and _is_long(document):
            yield batch
            batch, characters = [], 0
        batch.append(document)
        characters += sum(map(len, document.segments))
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _is_long(document: Document) -> bool:
    return any(len(segment) > LONG_SEGMENT for segment in document.segments)


@dataclasses.dataclass(slots=True)
class _EncodedDocuments:
    """Documents as they are stored: a row for each, and their tokens end to end; or a part of a long document.

    Attributes:
        rows: What :data:`DOCUMENT_SCHEMA` says; None for the parts of a long document but the last.
        ids: Token ids, ``[tokens]``.
        starts: Whether each token begins a masking unit, ``[tokens]``; None where the domain has no units.
    """

    rows: pa.RecordBatch | None
    ids: np.ndarray
    starts: np.ndarray | None


def _encode(domain: Domain, documents: list[Document]) -> Iterator[_EncodedDocuments]:
    """Encodes documents at once; where that fails, one by one, to find the one that the plugin fails on."""
    if len(documents) == 1 and _is_long(documents[0]):
        yield from _encode_long(domain, documents[0])
        return
    try:
        yield _encode_together(domain, documents)
    except SeqbertError:
        raise
    except Exception as error:
        for document in documents:
            try:
                _encode_together(domain, [document])
            except Exception as own:
                raise PluginError.of(domain, f"encoding the record {_name(document)}", own) from own
        together = f"encoding the records from {_name(documents[0])} to {_name(documents[-1])} at once"
        raise PluginError.of(domain, together, error) from error


def _encode_long(domain: Domain, document: Document) -> Iterator[_EncodedDocuments]:
    """The tokens of a document by parts; what says where its segments end comes last."""
    vocab_size = domain.vocabulary.get_vocab_size()
    counts = []
    try:
        for segment in document.segments:
            tokens = 0
            for part in domain.encode_long(segment):
                _check_encoded(part, 1, vocab_size)
                tokens += len(part.ids)
                yield _EncodedDocuments(None, part.ids, _starts(domain, part))
            counts.append(tokens)
    except SeqbertError:
        raise
    except Exception as error:
        raise PluginError.of(domain, f"encoding the record {_name(document)}", error) from error
    ids = np.zeros(0, np.int32)
    yield _EncodedDocuments(_rows([document], [counts]), ids, None if domain.unit == "token" else ids.astype(np.uint8))


def _encode_together(domain: Domain, documents: list[Document]) -> _EncodedDocuments:
    segments = [segment for document in documents for segment in document.segments]
    encoded = domain.encode(segments, offsets=False)
    _check_encoded(encoded, len(segments), domain.vocabulary.get_vocab_size())
    lengths = iter(encoded.lengths.tolist())
    counts = [list(islice(lengths, len(document.segments))) for document in documents]
    return _EncodedDocuments(_rows(documents, counts), encoded.ids, _starts(domain, encoded))


def _starts(domain: Domain, encoded: Encoded) -> np.ndarray | None:
    if domain.unit == "token":
        return None
    return _unit_starts(encoded.units, encoded.lengths, len(encoded.ids))


def _check_encoded(encoded: Encoded, texts: int, vocab_size: int) -> None:
    """Raises ValueError where what a plugin gave is not what :class:`Encoded` says, before it is stored so."""
    ids, lengths, units = encoded.ids, encoded.lengths, encoded.units
    if len(lengths) != texts or lengths.sum() != len(ids) or (units is not None and len(units) != len(ids)):
        raise ValueError(
            f"{texts} texts were encoded as {len(lengths)} of {lengths.sum()} tokens, with {len(ids)} ids"
            f"{'' if units is None else f' and {len(units)} unit ids'}"
        )
    if len(ids) and (ids.min() < 0 or ids.max() >= vocab_size):
        raise ValueError(f"the token ids are {ids.min()} to {ids.max()}, and the vocabulary has {vocab_size} tokens")


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


def _rows(documents: list[Document], counts: list[list[int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": [_storable(document.id) for document in documents],
            "source": [_storable(document.source) for document in documents],
            "metadata": [_storable(json.dumps(document.metadata, ensure_ascii=False)) for document in documents],
            "digest": [_digest(document) for document in documents],
            "segments": counts,
        },
        schema=DOCUMENT_SCHEMA,
    )


def _storable(text: str) -> str:
    """The text without lone surrogates, which stand for the bytes of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _digest(document: Document) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for segment in document.segments:
        for start in range(0, len(segment), BATCH_CHARACTERS):
            digest.update(segment[start : start + BATCH_CHARACTERS].encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return int.from_bytes(digest.digest(), "little")


class _ShardWriter:
    """Writes the tokens and the documents of one shard as they come; whole unless it is left by an exception."""

    def __init__(self, folder: Path, shard: int, dtype: np.dtype[Any], has_units: bool) -> None:
        self._dtype = dtype
        fields = [("ids", pa.from_numpy_dtype(dtype))] + ([("unit_start", pa.uint8())] if has_units else [])
        self._schema = pa.schema(fields)
        self._sinks = [pa.OSFile(str(folder / f"{kind}-{shard:05d}.arrow"), "wb") for kind in ("tokens", "documents")]
        self._tokens = pa.ipc.new_file(self._sinks[0], self._schema)
        self._documents = pa.ipc.new_file(self._sinks[1], DOCUMENT_SCHEMA)
        self._waiting: list[_EncodedDocuments] = []
        self._count = 0

    def __enter__(self) -> _ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self._flush()
            self._tokens.close()
            self._documents.close()
        for sink in self._sinks:
            sink.close()

    def write(self, batch: _EncodedDocuments) -> None:
        """Adds documents in order, and the parts of long ones."""
        if batch.rows is not None:
            self._documents.write_batch(batch.rows)
        self._waiting.append(batch)
        self._count += len(batch.ids)
        if self._count >= BATCH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if self._count:
            columns = [np.concatenate([batch.ids for batch in self._waiting]).astype(self._dtype, copy=False)]
            if len(self._schema) > 1:
                columns.append(np.concatenate([batch.starts for batch in self._waiting if batch.starts is not None]))
            self._tokens.write_batch(
                pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=self._schema)
            )
        self._waiting, self._count = [], 0
