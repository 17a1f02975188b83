"""``seqbert embed``: vectors of sequences, or of each of their tokens, as Parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from seqbert import __version__
from seqbert.data.packing import PackedBatch
from seqbert.data.records import Batcher, Inputs, Records, lay_out
from seqbert.data.whole import written_beside
from seqbert.data.windows import most_context
from seqbert.domain import SPECIAL_TOKENS, Example, Report
from seqbert.errors import ConfigError, nearest
from seqbert.inference.trained import Trained
from seqbert.models.config import EncoderConfig
from seqbert.training.parallel import World, join

if TYPE_CHECKING:
    import pyarrow as pa

Pooling = Literal["mean", "cls", "none"]
"""What a record's vector is: the mean over its tokens, that of [CLS], or one for each token."""

BUFFER_RECORDS = 2048
"""Most records that are sorted by length, run and written at once: a row group."""

BUFFER_CHARACTERS = 2**21
"""Characters after which a buffer is full."""

BUFFER_FLOATS = 2**24
"""Most numbers in a buffer's vectors of single tokens, unless one record alone has more: 64 MB."""

_SPECIAL, _ELSEWHERE = -1, -2  # in place of a place: a special token; a token that another window sees better


@dataclasses.dataclass(frozen=True, slots=True)
class EmbedResult:
    """What was written.

    Attributes:
        records: Records that have vectors.
        width: Numbers in a vector.
        skipped: Records that were left out, by reason.
    """

    records: int
    width: int
    skipped: dict[str, int]


def embed(
    run: str | Path | Trained,
    data: str | Path | Sequence[str],
    output: str | Path,
    *,
    pooling: Pooling = "mean",
    layers: str | Sequence[int] = "last",
    domain: str | None = None,
    max_length: int | None = None,
    options: Sequence[str] = (),
    device: str = "auto",
    precision: str = "auto",
) -> EmbedResult:
    """Writes the vectors of records, which are read, run and written as a stream: memory does not grow with them.

    Under torchrun each process runs a part of them.

    A record of two texts is one sequence, as in training. One that is longer than ``max_length`` goes through the
    encoder in windows that overlap by half, and each token counts where it has most context.

    Args:
        run: A pretrained, imported or fine-tuned run's folder, or a model that is loaded already.
        data: Files, folders or globs: tables, or whatever the domain reads.
        output: The Parquet file, a row a record in the order of the input. Columns: id, source, tokens (without special
            ones), windows, and ``vector``; with ``pooling="none"`` instead of that, in lists as long as the record,
            ``vectors``, ``token``, ``start`` and ``end`` (characters of the canonical text), ``part`` (0 or 1: which
            text of a pair). Its metadata name the run, domain, layers and pooling.
        pooling: ``mean``: over all tokens, [CLS] and [SEP] among them (Reimers and Gurevych 2019, section 3). ``cls``:
            that of [CLS]. Both are means over the windows for special tokens. ``none``: one vector a token, without
            special tokens.
        layers: ``last``, ``second_to_last``, ``sum_last_four``, ``concat_last_four``, or numbers of layers, 0 being the
            embeddings' output; the vectors of several numbers stand side by side.
        domain: The domain, where the run has several.
        max_length: Most tokens of a sequence, special tokens included; None: as in the run's training.
        options: What is particular about the files: ``["--columns.sequence", "seq"]``.
        device: cpu, cuda, mps, or auto. Not read where ``run`` is loaded already.
        precision: fp32, bf16, or auto: bf16 on a GPU that has it. Not read where ``run`` is loaded already.

    Returns:
        How many records have vectors, how wide those are, and what was left out.

    Raises:
        ConfigError: if an argument cannot be used, or ``output`` cannot be written to.
        CheckpointError: if there is no model.
        DataError: if a file cannot be read, or has no record that can be used. No output is left then.
    """
    target = Path(output)
    _check_target(target)
    if pooling not in get_args(Pooling):
        raise ConfigError(f'pooling is "{pooling}", and it is one of {", ".join(get_args(Pooling))}.')
    with join() as world:
        trained = Trained.on(run, domain, device, precision, world)
        chosen = Layers.of(layers, trained.model.config)
        embedder = _Embedder(trained, chosen, pooling, trained.window(max_length))
        report = Report()
        records = _write(embedder, trained.examples(data, options, report), target, world)
    return EmbedResult(records, chosen.width, dict(report.skips))


def _write(embedder: _Embedder, examples: Iterable[Example], target: Path, world: World) -> int:
    """Writes the vectors, a buffer of records a row group, and counts the records.

    Of several processes each writes a file with the buffers whose turn is its own; the first brings them together.
    """
    import pyarrow.parquet as pq

    width = embedder.layers.width
    characters = max(1, BUFFER_FLOATS // width) if embedder.pooling == "none" else BUFFER_CHARACTERS
    drafts = [target.with_name(f".{target.name}.{rank}.writing") for rank in range(world.size)]
    own, records = drafts[world.rank], 0
    try:
        with pq.ParquetWriter(own, embedder.schema, use_dictionary=False) as writer:
            for number, buffer in enumerate(buffers(examples, BUFFER_RECORDS, characters)):
                records += len(buffer)
                if number % world.size == world.rank:
                    writer.write_table(embedder.table(buffer), row_group_size=len(buffer))
        world.wait()
        if world.leads:
            _bring_together(drafts)
            own.replace(target)
        world.wait()
    finally:
        own.unlink(missing_ok=True)
    return records


def _bring_together(drafts: Sequence[Path]) -> None:
    """Makes the first file hold the row groups of all, in turn."""
    import pyarrow.parquet as pq

    if len(drafts) == 1:
        return
    parts = [pq.ParquetFile(draft) for draft in drafts]
    with (
        written_beside(drafts[0]) as whole,
        pq.ParquetWriter(whole, parts[0].schema_arrow, use_dictionary=False) as writer,
    ):
        for number in range(sum(part.num_row_groups for part in parts)):
            group = parts[number % len(parts)].read_row_group(number // len(parts))
            writer.write_table(group, row_group_size=len(group))


def buffers(examples: Iterable[Example], records: int, characters: int) -> Iterator[list[Example]]:
    """Neighbouring examples, at most ``records`` at a time and until they have ``characters``."""
    buffer: list[Example] = []
    size = 0
    for example in examples:
        length = sum(map(len, example.sequences))
        if buffer and (len(buffer) == records or size + length > characters):
            yield buffer
            buffer, size = [], 0
        buffer.append(example)
        size += length
    if buffer:
        yield buffer


@dataclasses.dataclass(frozen=True, slots=True)
class Layers:
    """Which hidden states a vector is made of.

    Attributes:
        name: What the user called them.
        numbers: The layers, 0 for the embeddings.
        added: Whether several are added up rather than put side by side.
        width: Numbers in a vector.
    """

    name: str
    numbers: tuple[int, ...]
    added: bool
    width: int

    @classmethod
    def of(cls, asked: str | Sequence[int], config: EncoderConfig) -> Layers:
        """Reads what a user asks for.

        Raises:
            ConfigError: if there are no such layers.

        >>> Layers.of("concat_last_four", EncoderConfig(96, 6, 2, 384))
        Layers(name='concat_last_four', numbers=(3, 4, 5, 6), added=False, width=384)
        """
        blocks, hidden = config.num_hidden_layers, config.hidden_size
        last_four = tuple(range(blocks - 3, blocks + 1))
        named = {
            "last": (blocks,),
            "second_to_last": (blocks - 1,),
            "sum_last_four": last_four,
            "concat_last_four": last_four,
        }
        if isinstance(asked, str):
            if asked not in named:
                raise ConfigError(
                    f'layers is "{asked}", and it is {", ".join(named)}, or numbers from 0 (embeddings) to {blocks}.'
                    + nearest(asked, named)
                )
            if named[asked][0] < 1:
                raise ConfigError(
                    f"layers is {asked}, and the model has {blocks} blocks: choose last, or numbers from 0 (the "
                    f"embeddings) to {blocks}."
                )
            name, numbers = asked, named[asked]
        else:
            name, numbers = ",".join(map(str, asked)), tuple(asked)
            if not numbers or min(numbers) < 0 or max(numbers) > blocks:
                raise ConfigError(f"layers is {name or 'empty'}; it has numbers from 0 (the embeddings) to {blocks}.")
        added = name == "sum_last_four"
        return cls(name, numbers, added, hidden if added else hidden * len(numbers))

    def choose(self, layers: Sequence[Tensor]) -> Tensor:
        """Of all layers, ``[tokens, hidden_size]`` each, the vectors ``[tokens, width]``."""
        chosen = [layers[number].float() for number in self.numbers]
        return torch.stack(chosen).sum(0) if self.added else torch.cat(chosen, dim=1)


class _Embedder:
    """Turns examples into the rows of the output."""

    def __init__(self, trained: Trained, layers: Layers, pooling: Pooling, max_length: int) -> None:
        import pyarrow as pa

        self.trained = trained
        self.layers = layers
        self.pooling = pooling
        self.max_length = max_length
        vector = pa.list_(pa.float32(), layers.width)
        fields = [("id", pa.string()), ("source", pa.string()), ("tokens", pa.int32()), ("windows", pa.int32())]
        if pooling == "none":
            fields += [
                ("vectors", pa.list_(vector)),
                ("token", pa.list_(pa.string())),
                ("start", pa.list_(pa.int32())),
                ("end", pa.list_(pa.int32())),
                ("part", pa.list_(pa.int8())),
            ]
        else:
            fields.append(("vector", vector))
        about = {
            "run": trained.run,
            "domain": trained.domain.name,
            "layers": layers.name,
            "pooling": pooling,
            "max_length": str(max_length),
            "seqbert": __version__,
        }
        self.schema: pa.Schema = pa.schema(fields, about)

    def table(self, examples: list[Example]) -> pa.Table:
        """The rows of these examples, in their order."""
        import pyarrow as pa

        domain = self.trained.domain
        records = Records.encode(examples, domain, "texts", offsets=self.pooling == "none")
        inputs = lay_out(records, "texts", self.max_length, "window", None)
        begin, end = self.trained.token_ids(*SPECIAL_TOKENS[2:4])
        batcher = Batcher(records, inputs, domain.name, begin, end, seed=0, batch_size=1, together=False)
        columns = [
            pa.array([example.id for example in examples], pa.string()),
            pa.array([example.source for example in examples], pa.string()),
            pa.array(records.record_lengths(), pa.int32()),
            pa.array(np.diff(inputs.of_record()), pa.int32()),
        ]
        if self.pooling == "none":
            columns += self._token_columns(records, self._token_vectors(batcher))
        else:
            columns.append(self._vector_array(self._pooled(batcher)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _pooled(self, batcher: Batcher) -> np.ndarray:
        """A vector a record, ``[records, width]``."""
        inputs = batcher.inputs
        windows = np.diff(inputs.of_record())
        sums = np.zeros((len(batcher.records), self.layers.width))
        counts = np.zeros(len(batcher.records))
        places = _places(batcher.records, inputs)
        for chosen in batcher.all(self.trained.device.micro_tokens):
            batch = batcher.pack(chosen)
            owners = inputs.record[chosen]
            if self.pooling == "cls":
                rows = self._vectors(batch, batch.cu_seqlens[:-1].long())
                shares = np.ones(len(chosen))
            else:
                vectors = self._vectors(batch)
                weights = [_weights(places[number], int(windows[inputs.record[number]])) for number in chosen.tolist()]
                numbers = torch.repeat_interleave(torch.tensor(batch.lengths)).to(vectors.device)
                weight = torch.from_numpy(np.concatenate(weights)).to(vectors)
                rows = vectors.new_zeros(len(chosen), self.layers.width)
                rows.index_add_(0, numbers, vectors * weight[:, None])
                shares = np.array([weight.sum() for weight in weights])
            np.add.at(sums, owners, rows.cpu().numpy())
            np.add.at(counts, owners, shares)
        return sums / counts[:, None]

    def _token_vectors(self, batcher: Batcher) -> np.ndarray:
        """A vector a token, the records one after another, ``[tokens, width]``."""
        found = np.zeros((int(batcher.records.record_lengths().sum()), self.layers.width), np.float32)
        places = _places(batcher.records, batcher.inputs)
        for chosen in batcher.all(self.trained.device.micro_tokens):
            vectors = self._vectors(batcher.pack(chosen)).cpu().numpy()
            place = np.concatenate([places[number] for number in chosen.tolist()])
            found[place[place >= 0]] = vectors[place >= 0]
        return found

    def _vectors(self, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """The vectors of a batch's tokens, ``[tokens, width]``, or of some of them, ``[rows, width]``."""
        if self.layers.numbers == (self.trained.model.config.num_hidden_layers,):
            return self.trained.hidden(batch, rows).float()  # without keeping the other layers
        vectors = self.layers.choose(self.trained.layers(batch))
        return vectors if rows is None else vectors[rows.to(vectors.device)]

    def _token_columns(self, records: Records, vectors: np.ndarray) -> list[pa.Array]:
        import pyarrow as pa

        assert records.offsets is not None
        texts = [(text, place) for group in records.texts for place, text in enumerate(group)]
        rows = np.concatenate([np.arange(*records.text_start[text : text + 2]) for text, _ in texts])
        of_text = np.concatenate([np.full(records.length(text), place, np.int8) for text, place in texts])
        edges = pa.array(np.concatenate([[0], np.cumsum(records.record_lengths())]), pa.int32())
        spell = self.trained.domain.vocabulary.id_to_token
        flat = [
            self._vector_array(vectors),
            pa.array([spell(number) for number in records.ids[rows].tolist()], pa.string()),
            *(pa.array(records.offsets[rows, side], pa.int32()) for side in (0, 1)),
            pa.array(of_text, pa.int8()),
        ]
        return [pa.ListArray.from_arrays(edges, values) for values in flat]

    def _vector_array(self, vectors: np.ndarray) -> pa.Array:
        import pyarrow as pa

        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), pa.float32()), self.layers.width)


def _places(records: Records, inputs: Inputs) -> list[np.ndarray]:
    """For each sequence, where each of its tokens stands in the stream of all records, ``[length]``.

    :data:`_SPECIAL` for special tokens, and :data:`_ELSEWHERE` for those that another window sees with more context.
    """
    places: list[np.ndarray] = []
    base = 0
    special = np.array([_SPECIAL])
    for texts, (low, high) in zip(records.texts, pairwise(inputs.of_record().tolist()), strict=True):
        pieces: list[list[np.ndarray]] = [[special] for _ in range(low, high)]
        for place, text in enumerate(texts):
            spans = [(start, stop) for _, start, stop in inputs.parts[low:high, place].tolist()]
            length = records.length(text)
            best = most_context(spans, length) if len(spans) > 1 else np.zeros(length, np.int64)
            for number, (start, stop) in enumerate(spans):
                here = np.where(best[start:stop] == number, base + np.arange(start, stop), _ELSEWHERE)
                pieces[number] += [here, special]
            base += length
        places += [np.concatenate(piece) for piece in pieces]
    return places


def _weights(places: np.ndarray, windows: int) -> np.ndarray:
    """What each token of a sequence adds to its record's mean: its special tokens count once over all windows."""
    return np.where(places >= 0, 1.0, np.where(places == _SPECIAL, 1.0 / windows, 0.0))


def _check_target(target: Path) -> None:
    if target.suffix.lower() != ".parquet":
        raise ConfigError(f'The vectors are written as Parquet, and "{target}" does not end with .parquet.')
    if not target.absolute().parent.is_dir():
        raise ConfigError(f'There is no folder "{target.absolute().parent}" to write "{target.name}" to.')
