"""The plugin: files of SMILES strings to documents, and SMILES strings to tokens and back."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Example, Report, Sample
from seqbert.errors import ConfigError, DataError
from seqbert_smiles.grammar import SYMBOL, fault, symbols

SAMPLE = Path(__file__).parent / "sample"
OPENERS: Mapping[str, Callable[..., IO[Any]]] = {
    ".gz": gzip.open,
    ".bgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


@dataclasses.dataclass
class SmilesOptions:
    """What a config may set under ``options:``."""

    salts: Literal["keep", "strip"] = "keep"
    """keep: a molecule of several parts ("CC(=O)[O-].[Na+]") stays whole; strip: its largest part remains."""


class Smiles(Domain):
    """Molecules: one SMILES string a line, one token an atom, bond, branch or ring closure."""

    name = "smiles"
    Options = SmilesOptions
    formats: ClassVar[Mapping[str, str]] = {".smi": "SMILES: one molecule a line, its name after a blank"}
    symbol = "SMILES symbol"
    pairs = False  # a molecule is one segment

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a line; its id is the name that follows the string, else the line's number."""
        for number, line in enumerate(_lines(path), 1):
            source = f"{path}:{number}"
            text, _, name = line.strip().partition(" ")
            if not text:
                report.tally("blank lines")
                continue
            reason = fault(text)
            if reason:
                report.skipped(source, reason)
                continue
            kept = self.canonical(text)
            if kept != text:
                report.repaired(source, "smaller parts stripped")
            yield Document(name.strip() or f"line {number}", [kept], source)

    def canonical(self, raw: str) -> str:
        """The string without blanks around it, and without its smaller parts where the options say so."""
        text = raw.strip()
        if self.options.salts == "strip":
            text = max(text.split("."), key=self.symbols)
        return text

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """Takes each symbol that ``segments`` hold as a token, the most frequent ones if there are too many.

        Elements, isotopes and charges make the list of possible atoms open, so it is learned from the corpus.

        Raises:
            ConfigError: if ``vocab_size`` leaves no room for a single symbol.
        """
        counts: Counter[str] = Counter()
        for segment in segments:
            counts.update(symbols(segment))
        by_frequency = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        if vocab_size is not None:
            if vocab_size <= len(SPECIAL_TOKENS):
                raise ConfigError(
                    f"domains.{self.name}.vocab_size is {vocab_size}, which leaves no room beside the "
                    f"{len(SPECIAL_TOKENS)} special tokens: set it to a larger number, or to null."
                )
            by_frequency = by_frequency[: vocab_size - len(SPECIAL_TOKENS)]
        vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *by_frequency])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SYMBOL), "isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
        return tokenizer

    def symbols(self, text: str) -> int:
        """The number of SMILES symbols; a token is one of them, however many letters it has."""
        return max(1, len(symbols(text)))

    def sample(self) -> Sample:
        """A thousand molecules of the NCI Open Database, and the polar surface area of each."""
        return Sample(
            about="1,000 molecules of the NCI Open Database (public domain) and their polar surface areas",
            files=[SAMPLE / "nci.smi"],
            tables={"polar_surface_area": _polar_surface_areas},
        )


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file that may be compressed, with every white space in them as a blank."""
    opener = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for line in file:
                if "\0" in line:
                    raise DataError(f'"{path}" is no text file: it holds bytes that no SMILES file has.')
                yield line.replace("\t", " ")
    except UnicodeDecodeError as error:
        raise DataError(f'"{path}" is no text in UTF-8: {error}. Convert it, or leave it out.') from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f'"{path}" cannot be read: {error}.') from error


def _polar_surface_areas() -> Iterator[Example]:
    path = SAMPLE / "polar_surface_area.tsv"
    with path.open(encoding="utf-8") as file:
        next(file)
        for number, line in enumerate(file, 2):
            name, text, area = line.rstrip("\n").split("\t")
            yield Example(name, (text,), float(area), f"{path}:{number}")
