"""A small domain for tests: words of letters, a token a letter, a word a masking unit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.corpus import TRAIN, Corpus
from seqbert.data.plan import Plan, Source
from seqbert.domain import SPECIAL_TOKENS, Balance, Document, Domain, Report, Sample
from seqbert.errors import DataError

if TYPE_CHECKING:  # torch takes seconds to load, and programs of tests that only prepare a corpus need none
    from seqbert.objectives import Objective, ObjectiveConfig

ALPHABET = "abcdefghij"


class Letters(Domain):
    """Documents are separated by blank lines; a line is a segment; ``#name`` begins a document of that group."""

    name = "letters"
    formats = {".letters": "words of letters"}
    overlapping = False
    grouped = False

    @property
    def unit(self) -> str:
        return "word"

    @property
    def overlap(self) -> int:
        return 2 if self.overlapping else 0

    @property
    def balance(self) -> Balance | None:
        return Balance("group", 0.5) if self.grouped else None

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        text = path.read_text(encoding="utf-8")
        if "\0" in text:
            raise DataError(f"{path} is binary.")
        for number, block in enumerate(text.split("\n\n")):
            lines = [line for line in block.split("\n") if line]
            group = lines.pop(0)[1:] if lines and lines[0].startswith("#") else ""
            if lines:
                yield Document(f"{path.stem}-{number}", lines, f"{path}:{number}", {"group": group})

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        tokenizer = Tokenizer(
            models.WordLevel({t: i for i, t in enumerate([*SPECIAL_TOKENS, *ALPHABET])}, unk_token="[UNK]")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
        )
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer

    def encode(self, texts, offsets=True):  # type: ignore[no-untyped-def]
        """The pre-tokenizer makes each letter a word, so units come from the blanks."""
        import numpy as np

        encoded = super().encode(texts, offsets=offsets)
        units = [[word for word, part in enumerate(text.split()) for _ in part] for text in texts]
        encoded.units = np.array([unit for row in units for unit in row], np.int32)
        return encoded

    def sample(self) -> Sample:
        return Sample("letters for tests", documents=lambda: iter([Document("one", ["abc def", "ghi"])]))


class OverlappingLetters(Letters):
    overlapping = True


class GroupedLetters(Letters):
    grouped = True


def write_documents(
    path: Path, documents: int, segments: tuple[int, int] = (1, 12), seed: int = 0, group: str = ""
) -> None:
    """Writes random documents of ``segments`` lines, each of two to eight words."""
    draw = random.Random(seed)

    def line() -> str:
        return " ".join("".join(draw.choices(ALPHABET, k=draw.randint(1, 6))) for _ in range(draw.randint(2, 8)))

    blocks = [[line() for _ in range(draw.randint(*segments))] for _ in range(documents)]
    head = f"#{group}\n" if group else ""
    path.write_text("\n\n".join(head + "\n".join(block) for block in blocks) + "\n", encoding="utf-8")


def build(folder: Path, domain: Domain | None = None, **request: object) -> Corpus:
    """The corpus of the files in ``folder``."""
    arguments = {"data": [str(folder)], **request}
    return build_corpus(BuildRequest(domain or Letters(), **arguments), folder.parent / "cache")  # type: ignore[arg-type]


def objective_and_source(
    corpus: Corpus, config: ObjectiveConfig, max_length: int = 32, tokens_per_step: int = 2048, seed: int = 0
) -> tuple[Objective, Source]:
    """An objective, and the training part of a corpus as it draws from it."""
    from seqbert.objectives import Objective

    objective = Objective(config, corpus)
    source = source_of(corpus, config, TRAIN, max_length, tokens_per_step, seed)
    objective.calibrate(source)
    return objective, source


def source_of(
    corpus: Corpus,
    config: ObjectiveConfig,
    part: str,
    max_length: int = 32,
    tokens_per_step: int = 2048,
    seed: int = 0,
) -> Source:
    """One part of a corpus as an objective draws from it."""
    from seqbert.objectives import Objective

    split = corpus.split(part)
    plan = Plan.of(corpus, split, Objective(config, corpus).window_size(max_length), seed)
    return Source(corpus, split, plan, seed, max_length, tokens_per_step)
