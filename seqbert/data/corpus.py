"""Encoded documents on disk: written as a stream, memory-mapped, larger than memory if need be.

A corpus is a folder:

    manifest.json           what it was made from, its sizes, and the data report
    tokenizer.json          the tokenizer that made it
    tokens-00000.arrow …    one flat column of token ids, in record batches
    documents-00000.arrow … id, source, metadata and segment lengths of each document of the shard
    vocabulary.arrow        for each token id: how often it stands in the training part, and the symbols it hides
    train-*.arrow, validation-*.arrow   where the segments and documents of each part stand

The same inputs give the same bytes, whatever the number of processes that built it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqbert.data.ranges import count_up, spread
from seqbert.errors import CheckpointError

LAYOUT = 3
"""Version of the folder's layout: a corpus of another layout is built anew."""

TRAIN, VALIDATION = "train", "validation"


def open_arrow(path: Path) -> pa.RecordBatchFileReader:
    """Maps an Arrow file into memory; nothing is copied.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path) from error


def write_columns(path: Path, **columns: np.ndarray) -> None:
    """Writes arrays of equal length as one record batch; memory-mapped arrays are streamed through."""
    arrays = [pa.Array.from_buffers(_arrow_type(c), len(c), [None, pa.py_buffer(c)]) for c in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Maps what :func:`write_columns` wrote.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    reader = open_arrow(path)
    try:
        batch = reader.get_batch(0)
        return {name: batch.column(name).to_numpy(zero_copy_only=True) for name in batch.schema.names}
    except pa.ArrowException as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f'The file "{path.name}" of the corpus "{path.parent}" is missing or damaged: delete the folder and the corpus '
        "is built again."
    )


def _arrow_type(array: np.ndarray) -> pa.DataType:
    return pa.from_numpy_dtype(array.dtype)


class TokenStore:
    """The token column of all shards as one long array."""

    def __init__(self, folder: Path, shards: int) -> None:
        self._batches: list[tuple[pa.RecordBatchFileReader, int]] = []
        sizes: list[int] = []
        self._paths = [folder / f"tokens-{shard:05d}.arrow" for shard in range(shards)]
        for path in self._paths:
            reader = open_arrow(path)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            self._batches += [(reader, i) for i in range(len(batches))]
            sizes += [batch.num_rows for batch in batches]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._open: dict[int, dict[str, np.ndarray]] = {}
        self._whole: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Token ids of a stretch that lies within one document, as stored (a view, or a copy across batches)."""
        return self._column("ids", start, stop)

    def unit_starts(self, start: int, stop: int) -> np.ndarray:
        """Whether each token of the stretch begins a masking unit."""
        return self._column("unit_start", start, stop)

    def gather(self, name: str, start: np.ndarray, stop: np.ndarray, after: np.ndarray) -> np.ndarray:
        """A column over many stretches, end to end, with room for special tokens.

        Args:
            name: "ids" or "unit_start".
            start: First place of each stretch, ``[stretches]`` int64.
            stop: One past its last place, ``[stretches]``.
            after: Places of room behind each stretch, 0 or 1, ``[stretches]``.

        Returns:
            As stored, for each stretch one place of room, the stretch, and the room behind it. What stands in the room
            means nothing.
        """
        column, shifts = self._whole_column(name)
        batch = np.searchsorted(self._starts, start, side="right") - 1
        last = np.searchsorted(self._starts, stop, side="left") - 1
        before = np.ones_like(batch)
        if (batch < last).any():  # those are cut where record batches end
            counts = np.maximum(last - batch, 0) + 1
            inner = count_up(counts)
            before = (inner == 0).astype(np.int64)
            after = np.repeat(after, counts) * (inner == np.repeat(counts, counts) - 1)
            batch = spread(batch, counts)
            start = np.maximum(np.repeat(start, counts), self._starts[batch])
            stop = np.minimum(np.repeat(stop, counts), self._starts[batch + 1])
        return column.take(spread(start + shifts[batch] - before, stop - start + before + after))

    def batches(self) -> Iterator[np.ndarray]:
        """The ids of each record batch in turn: read, not mapped, so that memory does not fill with what was seen."""
        for path in self._paths:
            with pa.OSFile(str(path)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number).column("ids").to_numpy(zero_copy_only=True)

    def columns(self, units: bool) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        """The place, the ids, and whether tokens begin masking units (None unless ``units``), of each record batch."""
        for number, start in enumerate(self._starts[:-1].tolist()):
            batch = self._batch(number)
            yield start, batch["ids"], batch["unit_start"] if units else None

    def _column(self, name: str, start: int, stop: int) -> np.ndarray:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        pieces = []
        while start < stop:
            base, end = int(self._starts[first]), int(self._starts[first + 1])
            pieces.append(self._batch(first)[name][start - base : min(stop, end) - base])
            start, first = min(stop, end), first + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _batch(self, number: int) -> dict[str, np.ndarray]:
        if number not in self._open:
            reader, index = self._batches[number]
            batch = reader.get_batch(index)
            self._open[number] = {name: batch.column(name).to_numpy(zero_copy_only=True) for name in batch.schema.names}
        return self._open[number]

    def _whole_column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """One array from the first to the last byte of the mapped files, and what leads from the store's places to it.

        In that array stand also the headers of the record batches, and between the files nothing that could be read;
        the shift of each batch, ``[batches]``, leaps them.
        """
        if name not in self._whole:
            files = [pa.memory_map(str(path)) for path in self._paths]
            columns = []
            for file in files:
                reader = pa.ipc.open_file(file)
                columns += [
                    reader.get_batch(number).column(name).to_numpy() for number in range(reader.num_record_batches)
                ]
            addresses = np.array([column.ctypes.data for column in columns])
            ends = addresses + [column.nbytes for column in columns]
            first = int(addresses.min()) - columns[0].itemsize
            whole = pa.foreign_buffer(first, int(ends.max()) + columns[0].itemsize - first, files)
            array = np.frombuffer(whole, columns[0].dtype)
            self._whole[name] = array, (addresses - first) // array.itemsize - self._starts[:-1]
        return self._whole[name]


@dataclasses.dataclass(slots=True)
class Split:
    """The training or the validation part of a corpus: its documents, and their segments in order.

    Attributes:
        part: "train" or "validation".
        first_segment: Number of the first segment of each document, ``[documents]``.
        tokens: Tokens of each document, ``[documents]``.
        row: Row of each document in the corpus' documents, ``[documents]``.
        group: Number of the group that each document is of, ``[documents]``.
        offset: Place of each segment's first token in the store, ``[segments]``.
        length: Tokens of each segment, ``[segments]``.
    """

    part: str
    first_segment: np.ndarray
    tokens: np.ndarray
    row: np.ndarray
    group: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    store: TokenStore
    has_units: bool

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.tokens)

    def segments(self, document: int) -> tuple[int, int]:
        """Number of a document's first segment, and of the one past its last."""
        last = document + 1 == self.documents
        return int(self.first_segment[document]), len(self.length) if last else int(self.first_segment[document + 1])

    def stretch(self, document: int, start: int, stop: int) -> tuple[int, int]:
        """Places in the store of the tokens ``start`` to ``stop`` of a document."""
        base = int(self.offset[self.first_segment[document]])
        return base + start, base + stop

    def segment(self, number: int) -> tuple[int, int]:
        """Places in the store of a segment's first token and of the one past its last."""
        start = int(self.offset[number])
        return start, start + int(self.length[number])


class Corpus:
    """A corpus opened from its folder. Pickles as the folder's name, so that workers open it themselves.

    Attributes:
        folder: Where it lies.
        manifest: What ``manifest.json`` says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        path = self.folder / "manifest.json"
        if not path.is_file():
            raise CheckpointError(f'"{folder}" is not a corpus: it has no manifest.json.')
        try:
            self.manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            layout = self.manifest["layout"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise _damaged(path) from error
        if layout != LAYOUT:
            raise CheckpointError(
                f'The corpus "{folder}" has layout {layout}, this version of seqbert reads layout '
                f"{LAYOUT}: delete the folder and it is built again."
            )

    def __reduce__(self) -> tuple[type[Corpus], tuple[Path]]:
        return Corpus, (self.folder,)

    @property
    def domain(self) -> str:
        """Name of the domain."""
        return str(self.manifest["domain"])

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return int(self.manifest["vocab_size"])

    @property
    def overlap(self) -> int:
        """How many symbols a token shares with the next."""
        return int(self.manifest["overlap"])

    @property
    def unit(self) -> str:
        """Name of the masking unit that is stored, or "token"."""
        return str(self.manifest["unit"])

    @property
    def tokenizer_json(self) -> str:
        """The tokenizer, as ``tokenizers`` writes it.

        Raises:
            CheckpointError: It is missing, or another than the one that the corpus was made with.
        """
        path = self.folder / "tokenizer.json"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _damaged(path) from error
        if hashlib.sha256(content).hexdigest() != self.report["tokenizer"]["sha256"]:
            raise _damaged(path)
        return content.decode("utf-8")

    @property
    def fingerprint(self) -> str:
        """Stands for the documents, what is held out of them, and the tokenizer; not for where the files lie."""
        return f"{self.manifest['content']}-{self.report['tokenizer']['sha256']}"

    @property
    def report(self) -> dict[str, Any]:
        """The data report."""
        report: dict[str, Any] = self.manifest["report"]
        return report

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """Ids of the five special tokens, by their text."""
        return {text: int(number) for text, number in self.manifest["special_ids"].items()}

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """The ids that are no special tokens, ``[vocab_size - specials]``: what a random token is drawn from."""
        ordinary = np.ones(self.vocab_size, bool)
        ordinary[self.manifest["all_special_ids"]] = False
        return np.flatnonzero(ordinary)

    @cached_property
    def special_mask(self) -> np.ndarray:
        """Whether an id is a special token, ``[vocab_size]``."""
        mask = np.ones(self.vocab_size, bool)
        mask[self.ordinary_ids] = False
        return mask

    @cached_property
    def symbols(self) -> np.ndarray:
        """Symbols that each token id stands for, ``[vocab_size]`` float32."""
        return read_columns(self.folder / "vocabulary.arrow")["symbols"]

    @cached_property
    def frequencies(self) -> np.ndarray:
        """Share of each token id in the training part, ``[vocab_size]`` float64, with counts raised by one (Laplace).

        A special token, which is never a target, counts as one that was never seen.
        """
        counts = np.where(self.special_mask, 1.0, self._raised_counts)
        shares: np.ndarray = counts / counts.sum()
        return shares

    @cached_property
    def unigram_bits(self) -> np.ndarray:
        """Bits that a unigram model of the training part needs for each token id, ``[vocab_size]`` float64.

        Counts are raised by one (Laplace), so that a token seen only in validation has a finite cost. Special
        tokens are never targets and take no share. Where tokens overlap, the next token shows all symbols of a target
        but the first, so that the choice is among the tokens that go on alike.
        """
        counts = np.where(self.special_mask, 0.0, self._raised_counts)
        choices = counts.sum()
        if self.overlap:
            from tokenizers import Tokenizer

            vocabulary = Tokenizer.from_str(self.tokenizer_json)
            shown = [(vocabulary.id_to_token(number) or "")[1:] for number in range(len(counts))]
            _, group = np.unique(shown, return_inverse=True)
            choices = np.bincount(group, counts)[group]
        with np.errstate(divide="ignore", invalid="ignore"):
            bits = np.log2(choices) - np.log2(counts)
        return np.where(self.special_mask, np.inf, bits)

    @property
    def _raised_counts(self) -> np.ndarray:
        counts: np.ndarray = read_columns(self.folder / "vocabulary.arrow")["count"].astype(np.float64) + 1.0
        return counts

    @cached_property
    def store(self) -> TokenStore:
        """The tokens."""
        return TokenStore(self.folder, int(self.manifest["shards"]))

    def name_of(self, row: int) -> str:
        """The id of a document, and where it came from."""
        for shard in range(int(self.manifest["shards"])):
            documents = open_arrow(self.folder / f"documents-{shard:05d}.arrow").read_all()
            if row < len(documents):
                name, source = (documents[column][row].as_py() for column in ("id", "source"))
                return f"{name} ({source})" if source else str(name)
            row -= len(documents)
        raise IndexError(row)

    def split(self, part: str) -> Split:
        """The ``"train"`` or the ``"validation"`` part."""
        documents = read_columns(self.folder / f"{part}-documents.arrow")
        segments = read_columns(self.folder / f"{part}-segments.arrow")
        return Split(
            part,
            documents["first_segment"],
            documents["tokens"],
            documents["row"],
            documents["group"],
            segments["offset"],
            segments["length"],
            self.store,
            self.unit != "token",
        )
