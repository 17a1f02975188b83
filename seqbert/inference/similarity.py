"""``seqbert similarity``: how alike one token's vectors are in different contexts, by layer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from seqbert.analysis import charts
from seqbert.analysis.representation import cosines
from seqbert.domain import Domain, Report
from seqbert.errors import ConfigError, DataError
from seqbert.inference.trained import Trained

AROUND = 14
"""Characters to each side of a place that its label shows."""

MOST_PLACES = 60
"""Places beyond which cells and labels could not be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class SimilarityResult:
    """Where a token was found, and how alike its vectors are.

    Attributes:
        places: A label for each place: record, and what stands around.
        layers: Numbers of the layers, 0 being the embeddings.
        cosines: Cosine between every two places in each layer, ``[layers, places, places]``.
    """

    places: list[str]
    layers: list[int]
    cosines: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    record: str
    text: str
    start: int
    end: int

    @property
    def label(self) -> str:
        """``2: a [class] statement``, cut where the record is long."""
        left, right = max(0, self.start - AROUND), min(len(self.text), self.end + AROUND)
        before = "…" * (left > 0) + self.text[left : self.start]
        after = self.text[self.end : right] + "…" * (right < len(self.text))
        return f"{self.record}: {before}[{self.text[self.start : self.end]}]{after}"


def similarity(
    run: str | Path | Trained,
    data: str | Path | Sequence[str],
    token: str | None = None,
    *,
    at: Sequence[str] = (),
    layers: Sequence[int] | None = None,
    domain: str | None = None,
    max_length: int | None = None,
    options: Sequence[str] = (),
    output: str | Path | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> SimilarityResult:
    """Compares the vectors of a token wherever it occurs in some records (Ethayarajh 2019, section 3).

    A word of several pieces has the mean of their vectors. In a record that is longer than ``max_length`` the token is
    seen in the middle of a window, as far as the record's ends allow.

    Args:
        run: A run's folder, or a model that is loaded already.
        data: Plain text files, of which each line is a record; or tables and files that the domain reads.
        token: A word, residue, base or note, as the domain's canonical text has it. Case does not matter.
        at: In place of a token, places as ``RECORD:NUMBER``: the record, and which of its words (or residues, bases,
            notes) is meant, both counted from 1.
        layers: Which layers, 0 being the embeddings' output; None: all.
        domain: The domain, where the run has several.
        max_length: Most tokens of a sequence, special tokens included; None: as in the run's training.
        options: What is particular about the files: ``["--columns.sequence", "seq"]``.
        output: A picture, heat maps of the embeddings, the middle and the last of the layers; its ending is replaced
            by ``.png`` and ``.svg``.
        device: cpu, cuda, mps, or auto. Not read where ``run`` is loaded already.
        precision: fp32, bf16, or auto. Not read where ``run`` is loaded already.

    Raises:
        ConfigError: An argument cannot be used.
        CheckpointError: There is no model.
        DataError: A file cannot be read, or the token stands in fewer than two places.
    """
    if (token is None) == (not at):
        raise ConfigError("Name either a token (--token), or places (--at RECORD:NUMBER).")
    trained = Trained.on(run, domain, device, precision)
    records = list(_records(trained, data, options))
    if token is not None:
        wanted = trained.domain.canonical(token).strip()
        places = [place for record, text in records for place in _occurrences(trained.domain, record, text, wanted)]
    else:
        places = [_place_at(trained.domain, dict(records), name) for name in at]
    if len(places) < 2:
        what = f'"{token}" stands' if token is not None else "the token is named"
        raise DataError(f"{what} in {len(places)} places of {len(records)} records, and two are needed to compare.")
    if len(places) > MOST_PLACES:
        raise DataError(
            f'"{token}" stands in {len(places):,} places, and {MOST_PLACES} can be shown: give fewer records, or name '
            "places (--at RECORD:NUMBER)."
        )
    depth = trained.model.config.num_hidden_layers
    chosen = list(range(depth + 1)) if layers is None else list(layers)
    for number in chosen:
        if not 0 <= number <= depth:
            raise ConfigError(f"layers: there is no layer {number}; this encoder has 0 (the embeddings) to {depth}.")
    window = trained.window(max_length)
    vectors = np.stack([_vectors(trained, place, window) for place in places])  # [places, layers, width]
    result = SimilarityResult(
        [place.label for place in places], chosen, np.stack([cosines(vectors[:, number]) for number in chosen])
    )
    if output is not None:
        _draw(result, token or "the places named", Path(output))
    return result


def _records(trained: Trained, data: str | Path | Sequence[str], options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Number and canonical text of each record; of plain text a line is one."""
    entries = [str(data)] if isinstance(data, str | Path) else [str(entry) for entry in data]
    number = 0
    for entry in entries:
        path = Path(entry)
        if path.suffix.lower() == ".txt" and path.is_file():
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError as error:
                raise DataError(f"{path} is not text in UTF-8.") from error
            texts = [trained.domain.canonical(line) for line in lines if line.strip()]
        else:
            texts = [example.sequences[0] for example in trained.examples(entry, options, Report())]
        for text in texts:
            number += 1
            yield str(number), text


def _occurrences(domain: Domain, record: str, text: str, token: str) -> Iterator[_Place]:
    """Every place of a token: as a whole word where white space separates words, else wherever it stands."""
    pattern = re.escape(token)
    if len(domain.words(text)) == len(text.split()):
        pattern = rf"(?<!\w){pattern}(?!\w)"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield _Place(record, text, *match.span())


def _place_at(domain: Domain, records: dict[str, str], name: str) -> _Place:
    record, _, number = name.partition(":")
    if record not in records or not number.isdecimal():
        raise ConfigError(f'at: "{name}" names no place; it is RECORD:NUMBER, with a record from 1 to {len(records)}.')
    words = domain.words(records[record])
    if not 1 <= int(number) <= len(words):
        raise ConfigError(f'at: "{name}": the record has {len(words)} words or symbols, counted from 1.')
    start, end = words[int(number) - 1].tolist()
    return _Place(record, records[record], start, end)


def _vectors(trained: Trained, place: _Place, window: int) -> np.ndarray:
    """The mean vector of a place's tokens in each layer, ``[layers, width]``.

    Raises:
        DataError: No token stands there.
    """
    encoded = trained.domain.encode([place.text])
    assert encoded.offsets is not None
    at = np.flatnonzero((encoded.offsets[:, 0] < place.end) & (encoded.offsets[:, 1] > place.start))
    if not len(at):
        raise DataError(f"No token stands at {place.label}.")
    room = window - 2
    first = min(max(0, (at[0] + at[-1] + 1 - room) // 2), max(0, len(encoded.ids) - room))
    inside = at[(at >= first) & (at < first + room)] - first + 1  # behind [CLS]
    layers = trained.layers(trained.sequence(encoded.ids[first : first + room]))
    return np.stack([layer[inside].float().mean(0).cpu().numpy() for layer in layers])


def _draw(result: SimilarityResult, token: str, output: Path) -> None:
    shown = sorted({0, len(result.layers) // 2, len(result.layers) - 1})
    panels = {
        ("embeddings" if result.layers[row] == 0 else f"layer {result.layers[row]}"): result.cosines[row]
        for row in shown
    }
    charts.heat_maps(
        output.with_suffix(""), panels, result.places, title=f"{token} in different contexts", unit="cosine similarity"
    )
