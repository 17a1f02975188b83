"""``seqbert fill``: what a masked LM would put where [MASK] stands, or in place of bars, words or bases of a file."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import overload

import numpy as np
import torch

from seqbert.data.cache import cache_folder
from seqbert.data.fetching import fetch, in_files, is_address
from seqbert.domain import COMPRESSIONS, SPECIAL_TOKENS, Document, Domain, Report
from seqbert.errors import ConfigError, DataError
from seqbert.inference.grammar import Grammar
from seqbert.inference.hiding import Stretch, Tokens, parse_stretch
from seqbert.inference.infill import Choice, Filler, Infiller, check_masked_lm
from seqbert.inference.trained import Trained

MASK = SPECIAL_TOKENS[4]

SHOWN = 5
"""Documents of a file that a message names."""


@dataclasses.dataclass(frozen=True, slots=True)
class FilledPlace:
    """What was put in one place.

    Attributes:
        place: Its number in the document, from 1: that of the token, or of the symbol where tokens overlap.
        was: What stood there; None where [MASK] did.
        token: What was put in: a token as the vocabulary spells it, or a symbol.
        probability: What the model gave it, in view of all that was put in before.
        fillers: What else it might have been, the most probable first.
    """

    place: int
    was: str | None
    token: str
    probability: float
    fillers: list[Filler]


@dataclasses.dataclass(frozen=True, slots=True)
class Filled:
    """A document, filled.

    Attributes:
        id: Its name.
        text: All of it, in canonical text.
        places: What was put in, from the beginning to the end.
        output: The file that it was written to, if any.
        notes: What else should be known.
    """

    id: str
    text: str
    places: list[FilledPlace]
    output: str | None
    notes: list[str]


@overload
def fill(
    run: str | Path | Trained,
    sequence: str | Path,
    *,
    domain: str | None = None,
    top: int = 5,
    device: str = "auto",
    precision: str = "auto",
) -> list[list[Filler]]: ...


@overload
def fill(
    run: str | Path | Trained,
    sequence: str | Path,
    *,
    mask: str | Sequence[str] = (),
    output: str | Path | None = None,
    record: str | None = None,
    temperature: float = 0.0,
    seed: int = 0,
    domain: str | None = None,
    top: int = 5,
    max_length: int | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> list[list[Filler]] | Filled: ...


def fill(
    run: str | Path | Trained,
    sequence: str | Path,
    *,
    mask: str | Sequence[str] = (),
    output: str | Path | None = None,
    record: str | None = None,
    temperature: float = 0.0,
    seed: int = 0,
    domain: str | None = None,
    top: int = 5,
    max_length: int | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> list[list[Filler]] | Filled:
    """The most probable tokens for each [MASK] of a sequence; or a document with what ``mask`` names filled.

    With neither ``mask`` nor ``output``, each [MASK] is judged by itself. With one of them, places are filled one after
    another (:class:`~seqbert.inference.infill.Infiller`): as many tokens as were hidden, in as many units.

    Args:
        run: A run's folder, or a model that is loaded already.
        sequence: A sequence with [MASK] for each token that is wanted. Where tokens overlap (k-mers), [MASK] stands for
            one symbol: all tokens over it are hidden, and the fillers are those that begin with it. With ``mask``: a
            file of any format that the domain reads, "-" for standard input, an address such as s3://bucket/key; else a
            sequence, as the domain takes one from a table.
        mask: What is hidden: UNIT:N or UNIT:N-M, or several of them. UNIT is the domain's unit (bar, word, codon), its
            symbol (note, character, base, residue) or token; N counts from 1 within the document.
        output: A file to write the filled document to, in a format of the domain that its ending names.
        record: Which document of the file is meant, by name or by number from 1; needed where it has several.
        temperature: 0: the most probable filler; above: one drawn by the probabilities to the power 1 / temperature.
        seed: Of these draws.
        domain: The domain, where the run has several.
        top: How many fillers to give for each place.
        max_length: Most tokens that the model is shown at once, special tokens included; None: as in its training.
        device: cpu, cuda, mps, or auto. Not read where ``run`` is loaded already.
        precision: fp32, bf16, or auto: bf16 on a GPU that has it. Not read where ``run`` is loaded already.

    Returns:
        With neither ``mask`` nor ``output`` the fillers for each [MASK], in order, the most probable first; special
        tokens are left out. Else the document.

    Raises:
        ConfigError: An argument cannot be used, or there is no such unit.
        DataError: The sequence has no [MASK] or is too long for the model; the file cannot be read, or has no such
            document or place.
        CheckpointError: The model has no masked LM head.
    """
    stretches = [parse_stretch(one) for one in ([mask] if isinstance(mask, str) else mask)]
    target = None if output is None else Path(output)
    if target is not None and not target.absolute().parent.is_dir():
        raise ConfigError(f'There is no folder "{target.absolute().parent}" to write "{target.name}" to.')
    trained = Trained.on(run, domain, device, precision)
    check_masked_lm(trained)
    if not stretches and target is None:
        return _fillers(trained, str(sequence), top)
    infiller = Infiller(trained, trained.window(max_length), temperature, seed, top)
    if stretches:
        filled = _fill_stretches(infiller, _document(trained.domain, sequence, record, target), stretches)
    else:
        filled = _fill_masks(infiller, str(sequence))
    if target is not None:
        _write(trained.domain, filled.text, target)
        filled = dataclasses.replace(filled, output=str(output))
    return filled


@torch.inference_mode()
def fill_ids(trained: Trained, ids: np.ndarray, top: int = 5) -> list[list[Filler]]:
    """The fillers for each [MASK] id in ``ids [tokens]``, which have no [CLS] and [SEP] around them.

    Raises:
        CheckpointError: if the model has no masked LM head.
    """
    check_masked_lm(trained)
    batch = trained.sequence(ids)
    (mask_id,) = trained.token_ids(MASK)
    places = (batch.ids == mask_id).nonzero().squeeze(1)
    logits = trained.heads["masked_lm"](trained.hidden(batch, places)).float()
    probabilities = logits.softmax(-1)
    size = trained.domain.vocabulary.get_vocab_size()
    probabilities[:, size:] = 0.0  # rows that no token has
    probabilities[:, trained.token_ids(*SPECIAL_TOKENS)] = 0.0
    best = probabilities.topk(min(top, size - len(SPECIAL_TOKENS)), dim=-1)
    return [
        [Filler(trained.domain.vocabulary.id_to_token(i) or "", p) for i, p in zip(row_ids, row, strict=True)]
        for row_ids, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class FilledExample:
    """A held-out stretch with one token masked, what the model would put there, and what stood there."""

    shown: str
    fillers: list[Filler]
    truth: str


def fill_example(run: str | Path, domain: str, ids: list[int], place: int, top: int = 3) -> FilledExample:
    """Masks the token at ``place`` of ``ids`` and fills it."""
    trained = Trained.of_run(run, domain)
    masked = np.array(ids)
    masked[max(0, place - trained.domain.overlap) : place + 1] = trained.token_ids(MASK)
    decode = trained.domain.decode
    shown = " ".join(part for part in (decode(ids[:place]), MASK, decode(ids[place + 1 :])) if part)
    truth = trained.domain.vocabulary.id_to_token(ids[place]) or ""
    return FilledExample(shown, fill_ids(trained, masked, top)[-1], truth)


# Each [MASK] of a sequence by itself


def _fillers(trained: Trained, sequence: str, top: int) -> list[list[Filler]]:
    if MASK not in sequence:
        if os.path.exists(sequence):
            raise ConfigError(f'"{sequence}" is a file: name what of it is to be filled, as in --mask token:5.')
        raise DataError(f'The sequence has no {MASK}: put it where a token is wanted, as in "{sequence} {MASK}".')
    if trained.domain.overlap:
        return _fill_overlapping(trained, sequence, top)
    return fill_ids(trained, _encode_around_masks(trained, sequence), top=top)


def _fill_overlapping(trained: Trained, sequence: str, top: int) -> list[list[Filler]]:
    """The tokens that begin with each masked symbol, all tokens that reach it being hidden."""
    domain, overlap = trained.domain, trained.domain.overlap
    (mask_id,) = trained.token_ids(MASK)
    text, places = _around_masks(domain, sequence)
    ids = domain.encode([text], offsets=False).ids.astype(np.int64)
    if len(ids) <= overlap or places[-1] >= len(ids):
        raise DataError(
            f"The model's tokens are {overlap + 1} symbols long: a [MASK] needs at least {overlap} symbols behind it."
        )
    for place in places:
        ids[max(0, place - overlap) : place + 1] = mask_id
    order = np.searchsorted(np.flatnonzero(ids == mask_id), places)
    filled = fill_ids(trained, ids, top)
    return [filled[number] for number in order]


def _around_masks(domain: Domain, sequence: str) -> tuple[str, list[int]]:
    """Canonical text with any symbol in place of each [MASK], for the tokens over it are hidden; and their places."""
    stand_in = domain.decode([len(SPECIAL_TOKENS)])[0]
    parts = [domain.canonical(part) for part in sequence.split(MASK)]
    places = np.cumsum([len(part) for part in parts[:-1]]) + np.arange(len(parts) - 1)
    return stand_in.join(parts), places.tolist()


def _encode_around_masks(trained: Trained, sequence: str) -> np.ndarray:
    """Ids of the text before, between and behind the masks, with the mask's own id between them."""
    (mask_id,) = trained.token_ids(MASK)
    pieces: list[np.ndarray] = []
    for number, part in enumerate(sequence.split(MASK)):
        if number:
            pieces.append(np.array([mask_id]))
        text = trained.domain.canonical(part)
        if text:
            pieces.append(trained.domain.encode([text], offsets=False).ids)
    return np.concatenate(pieces).astype(np.int64)


# Whole documents


def _fill_masks(infiller: Infiller, sequence: str) -> Filled:
    """A sequence in which all [MASK] are filled."""
    trained = infiller.trained
    domain = trained.domain
    if MASK not in sequence:
        raise DataError(
            f"The sequence has no {MASK}, and nothing else is to be filled: put it where a token is wanted, or name "
            "what of the sequence is hidden, as in --mask token:5."
        )
    if domain.overlap:
        text, choices = infiller.fill_symbols(*_around_masks(domain, sequence))
        return Filled("sequence", text, [_placed(choice, None) for choice in choices], None, [])
    ids = _encode_around_masks(trained, sequence)
    (mask_id,) = trained.token_ids(MASK)
    ids, choices = infiller.fill(ids, np.flatnonzero(ids == mask_id))
    notes = []
    if unknown := int((ids == trained.token_ids(SPECIAL_TOKENS[1])[0]).sum()):
        notes.append(f"{unknown:,} tokens that the vocabulary does not know are left out of the text")
    return Filled("sequence", domain.decode(ids.tolist()), [_placed(choice, None) for choice in choices], None, notes)


def _fill_stretches(infiller: Infiller, document: Document, stretches: Sequence[Stretch]) -> Filled:
    """A document in which the tokens of these stretches are filled."""
    domain = infiller.trained.domain
    tokens = Tokens.of(document.segments, domain)
    grammar = None if domain.overlap else Grammar.of(domain)
    hidden = tokens.hidden(stretches, grammar)
    if not len(hidden):
        raise DataError(f"--mask {' '.join(map(str, stretches))} hides nothing: no token stands there.")
    texts, places = list(document.segments), []
    if domain.overlap:
        for number, symbols, base in _by_segment(tokens, hidden):
            before = texts[number]
            texts[number], choices = infiller.fill_symbols(before, symbols)
            places += [_placed(choice, before[choice.place], base) for choice in choices]
    else:
        ids, choices = infiller.fill(tokens.ids, hidden, tokens.within_units(), grammar)
        spell = domain.vocabulary.id_to_token
        places = [_placed(choice, spell(int(tokens.ids[choice.place]))) for choice in choices]
        for number, (low, high) in enumerate(pairwise(tokens.edges.tolist())):
            own = hidden[(hidden >= low) & (hidden < high)] - low
            if len(own):
                texts[number] = _respelled(domain, texts[number], ids[low:high], own)
    glue = _glue(domain, tokens)
    notes = []
    if len(texts) > 1 and not glue:
        notes.append(f"the {len(texts):,} stretches of the document are put end to end")
    return Filled(document.id, glue.join(texts), places, None, notes)


def _placed(choice: Choice, was: str | None, base: int = 0) -> FilledPlace:
    return FilledPlace(base + choice.place + 1, was, choice.token, choice.probability, choice.fillers)


def _by_segment(tokens: Tokens, hidden: np.ndarray) -> Iterator[tuple[int, list[int], int]]:
    """Segments of overlapping tokens, the symbols hidden in each, and the symbols before it."""
    base = 0
    for number, segment in enumerate(tokens.segments):
        own = (hidden[(hidden >= base) & (hidden < base + len(segment))] - base).tolist()
        if own:
            yield number, own, base
        base += len(segment)


def _respelled(domain: Domain, text: str, ids: np.ndarray, changed: np.ndarray) -> str:
    """A text in which some tokens are others; what stands between them stays as it was, to the letter.

    Tokens that touch those are spelled with them, for the pieces of a word are not spelled one by one.
    """
    spans = domain.encode([text]).offsets
    assert spans is not None
    unknown = domain.vocabulary.token_to_id(SPECIAL_TOKENS[1])
    own = np.zeros(len(ids), bool)
    own[changed] = True
    touches = spans[1:, 0] == spans[:-1, 1]
    for place in range(1, len(ids)):
        own[place] |= own[place - 1] and touches[place - 1] and ids[place] != unknown
    for place in range(len(ids) - 2, -1, -1):
        own[place] |= own[place + 1] and touches[place] and ids[place] != unknown
    edges = np.flatnonzero(np.diff(own.astype(np.int8), prepend=0, append=0))
    pieces, done = [], 0
    for low, high in edges.reshape(-1, 2).tolist():
        pieces += [text[done : spans[low, 0]], domain.decode(ids[low:high].tolist())]
        done = int(spans[high - 1, 1])
    return "".join([*pieces, text[done:]])


def _glue(domain: Domain, tokens: Tokens) -> str:
    """What stands between segments in one text: a blank, if that is what stands between tokens of two of them."""
    if domain.overlap:
        return ""
    for edge in tokens.edges[1:-1].tolist():
        if 0 < edge < len(tokens.ids):
            pair = tokens.ids[edge - 1 : edge + 1].tolist()
            return " " if domain.decode(pair) != domain.decode(pair[:1]) + domain.decode(pair[1:]) else ""
    return ""


# Files


def _document(domain: Domain, sequence: str | Path, record: str | None, target: Path | None) -> Document:
    """The document that is meant: one of a file, where there is a file of that name; else the sequence itself.

    Raises:
        DataError: The file is not there, holds nothing, or not what is asked for.
        ConfigError: It is the file that is to be written.
    """
    path = _file(domain, sequence)
    if path is None:
        if record is not None:
            raise ConfigError("--record chooses among the documents of a file, and this is a sequence.")
        text = domain.canonical(str(sequence))
        if not text:
            raise DataError("Nothing is left of the sequence in canonical form.")
        return Document("sequence", [text])
    if target is not None and target.exists() and target.resolve() == path.resolve():
        raise ConfigError(f'"{target}" is the file that is read: name another one to write to (--output).')
    report = Report()
    report.place = str(path)
    documents = domain.read(path, report)
    if record is None:
        found = list(islice(documents, SHOWN))
        if len(found) > 1:
            names = ", ".join(f'"{one.id}"' for one in found)
            raise DataError(
                f"{path} holds several documents ({names}{' and so on' if len(found) == SHOWN else ''}): say which is "
                "meant, by --record NAME, or by its number as in --record 1."
            )
        if not found:
            raise DataError(f"{path} holds no document that can be used{_skipped(report)}.")
        return found[0]
    count, by_number = 0, None
    for document in documents:
        count += 1
        if document.id == record:
            return document
        if record.isdecimal() and int(record) == count:
            by_number = document
    if by_number is None:
        raise DataError(f'{path} has no document "{record}": it holds {count:,}{_skipped(report)}.')
    return by_number


def _file(domain: Domain, sequence: str | Path) -> Path | None:
    """The file that a user means; None where what was typed is a sequence.

    Raises:
        DataError: It is a folder, or a name of a file that is not there.
    """
    typed = str(sequence)
    if is_address(typed):
        found = fetch(typed, cache_folder())
        if len(found) != 1:
            raise DataError(f"{typed} names {len(found):,} files, and one is filled at a time.")
        return found[0]
    if typed == "-":
        return Path(in_files([typed], cache_folder())[0])
    if os.path.isdir(typed):
        raise DataError(f'"{typed}" is a folder: name the file that is to be filled.')
    if os.path.exists(typed):  # Path.exists fails where a long sequence is no possible name
        return Path(typed)
    suffixes = [suffix.lower() for suffix in Path(typed[-260:]).suffixes if suffix.lower() not in COMPRESSIONS]
    looks_like_one = isinstance(sequence, Path) or (not any(map(str.isspace, typed)) and os.sep in typed)
    if looks_like_one or (suffixes and suffixes[-1] in domain.formats):
        raise DataError(f'There is no file "{typed}".')
    return None


def _skipped(report: Report) -> str:
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in report.skips.items())
    return f"; skipped: {reasons}" if reasons else ""


def _write(domain: Domain, text: str, target: Path) -> None:
    """Writes a document beside its place, under its own name, for the ending names the format; then moves it there."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".filling-") as folder:
        draft = Path(folder) / target.name
        domain.write(text, draft)
        os.replace(draft, target)
