"""The protein domain: residues, what becomes of every other character, and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from domains.protein.options import ProteinOptions
from domains.protein.tables import sample_tables
from domains.sequences.alphabet import Alphabet, Cleaned, each_character, places
from domains.sequences.bpe import train_bpe
from domains.sequences.fasta import write_fasta
from domains.sequences.reading import endings, holds_sequences, read_sequences, sequence_format
from domains.sequences.records import OTHER_KIND, Names, looks_like_nucleotides
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STANDARD = "LAGVESIKRDTPNQFYMHCW"
"""The twenty amino acids, in the order of ProtBert's vocabulary (Elnaggar et al. 2021)."""

RARE = "XUBZOJ*"
"""X any residue, U selenocysteine, B Asp or Asn, Z Glu or Gln, O pyrrolysine, J Leu or Ile; * a stop.

The codes are those of IUPAC-IUB (1984) and its later additions.
"""

BPE_VOCABULARY = 1024
"""Tokens by bpe where ``vocab_size`` is left out: some 1,000 merges halve a protein."""

_MEANINGS: Mapping[str, str] = {
    "X": "X (any residue) kept",
    "B": "B (Asp or Asn) kept",
    "Z": "Z (Glu or Gln) kept",
    "J": "J (Leu or Ile) kept",
    "U": "U (selenocysteine) kept",
    "O": "O (pyrrolysine) kept",
}
_ALONE = r"[X*-]"  # no token of several residues holds one of these
_INSERTED = bytes(range(ord("a"), ord("z") + 1))


class Protein(Domain):
    """Proteins by residue, or by tokens of several residues.

    By residue the vocabulary is fixed: the special tokens, the 20 amino acids, the six further IUPAC letters, ``*``,
    and ``-`` where gaps are kept. By bpe merges of these stand behind them. The masking unit is the token.

    Example:
        >>> protein = Protein()
        >>> protein.use(protein.tokenizer([], None))
        >>> protein.decode(protein.encode([protein.canonical("mktay-ia*")]).ids)
        'MKTAYIA'
    """

    name = "protein"
    Options = ProteinOptions
    formats = endings("protein")
    symbol = "residue"
    pairs = False  # a protein is one segment
    version = "2"

    options: ProteinOptions

    def __init__(self, options: ProteinOptions | None = None) -> None:
        super().__init__(options)
        keep_gaps = self.options.gaps == "keep"
        self._letters = STANDARD + RARE + ("-" if keep_gaps else "")
        self._alphabet = Alphabet(
            plain=STANDARD,
            rare=self._letters.removeprefix(STANDARD),
            replacement="X",
            aliases={".": "-"} if keep_gaps else None,
            removed="" if keep_gaps else "-.",
        )

    def reads(self, path: Path) -> bool:
        """By the content: a format that holds proteins; of FASTA, by a known ending or a first record of residues."""
        return holds_sequences(path, "protein", (STANDARD + RARE).encode())

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a protein, in one segment, with what its format says about it as metadata.

        Raises:
            DataError: As :func:`domains.sequences.reading.read_sequences` does, and for an unknown character where the
                option ``unknown`` is "error".
        """
        names = Names(report)
        form = sequence_format(path)
        drop_insertions = self.options.insertions == "drop" and form is not None and form.aligned
        for number, name, description, letters, metadata in read_sequences(path, "protein", report):
            source = f"{path}:{number}"
            if looks_like_nucleotides(letters):
                report.skipped(source, OTHER_KIND["protein"], name)
                continue
            if drop_insertions:
                columns = letters.translate(None, _INSERTED)
                report.tally("insertions of an alignment dropped", len(letters) - len(columns), source, name)
                letters = columns
            cleaned = self._alphabet.clean(letters)
            if cleaned.unknown_at and not self._accepts(cleaned, letters, name, source, report):
                continue
            text = self._told(cleaned, source, report)
            if not text:
                report.skipped(source, "nothing but gaps or a stop", name)
                continue
            known = {"description": description, **metadata} if description else metadata
            yield Document(names.unique(name, number), [text], source, known)

    def canonical(self, raw: str) -> str:
        """Upper case, without blanks and gaps, as :meth:`read` does it to a record.

        Raises:
            DataError: A character is no residue, and the option ``unknown`` is not "replace".
        """
        return self.cell(raw, Report(), "")

    def cell(self, raw: str, report: Report, source: str) -> str:
        """See :meth:`canonical`; what it changes is told to ``report``."""
        text = "".join(raw.split())
        cleaned = self._alphabet.clean(text.encode("latin-1", "replace"))
        if cleaned.unknown_at and self.options.unknown != "replace":
            problem = _problem(text[cleaned.unknown_at - 1], cleaned.unknown_at)
            raise DataError(f"{raw[:40]!r} is no protein: {problem}. Mend it, or set the option unknown to replace.")
        return self._told(cleaned, source, report)

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A token a residue, for which ``segments`` are not looked at; or tokens learned from them by bpe.

        Raises:
            ConfigError: ``vocab_size`` is below what the alphabet needs.
        """
        from tokenizers import Regex, decoders, pre_tokenizers

        needed = len(SPECIAL_TOKENS) + len(self._letters)
        if vocab_size is not None and vocab_size < needed:
            raise ConfigError(
                f"The protein vocabulary needs {needed} tokens, but vocab_size is {vocab_size}: leave it out "
                f"(null), or give {needed} or more."
            )
        by_residue = pre_tokenizers.Split(Regex("."), "isolated")
        residues = self._alphabet.tokenizer(self._letters, by_residue, decoders.Fuse())
        if self.options.tokens == "residue":
            return residues
        size = BPE_VOCABULARY if vocab_size is None else vocab_size
        cuts = pre_tokenizers.Split(Regex(_ALONE), "isolated")
        return train_bpe(residues, segments, size, self.options.longest_token, cuts)

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer by residue, or by bpe where the options say so.

        Raises:
            ConfigError: An amino acid has no token of its own, or the tokens are of the other sort.
        """
        vocabulary = tokenizer.get_vocab()
        if missing := [letter for letter in STANDARD if letter not in vocabulary]:
            raise ConfigError(
                f"This tokenizer has no token for the residue {missing[0]}, so it was not made for proteins: "
                "set tokenizer to null, or to one that the protein domain made."
            )
        made = "bpe" if type(tokenizer.model).__name__ == "BPE" else "residue"
        if made != self.options.tokens:
            raise ConfigError(
                f'This tokenizer is by {made}, but the protein option tokens is "{self.options.tokens}": set it to '
                f'"{made}", or set tokenizer to null.'
            )
        super().use(tokenizer)
        self._ids = self._alphabet.ids(vocabulary, vocabulary[tokenizer.model.unk_token])

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """The tokenizer's own ids, by residue looked up for all residues at once; no units, for each token is one.

        Raises:
            DomainError: No tokenizer is in use yet.
        """
        _ = self.vocabulary  # raises where none is in use
        if self.options.tokens == "bpe":
            return super().encode(texts, offsets)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        ids = self._ids[np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)]
        spans = None
        if offsets:
            starts = places(lengths).astype(np.int64)
            spans = np.stack([starts, starts + 1], axis=1)
        return Encoded(ids, lengths, None, spans)

    def words(self, text: str) -> np.ndarray:
        """Every residue, ``[residues, 2]``."""
        return each_character(text)

    def symbols(self, text: str) -> int:
        """Residues; the unknown token stands for one."""
        return 1 if text == "[UNK]" else len(text)

    def write(self, text: str, path: Path) -> None:
        """Writes one FASTA record, 60 residues a line."""
        write_fasta(path, "protein", text)

    def sample(self) -> Sample:
        """Proteins of families whose members are much alike; ``sample/SOURCE.md`` says which and how chosen."""
        return Sample(
            about="130 UniProt proteins of 9 families (UniProt Consortium, CC BY 4.0)",
            files=[Path(__file__).parent / "sample" / "uniprot_families.fasta.gz"],
            tables=sample_tables(self),
        )

    def _accepts(self, cleaned: Cleaned, letters: bytes, name: str, source: str, report: Report) -> bool:
        """Whether a record with a character that is no residue is given, as the option ``unknown`` says."""
        assert cleaned.unknown_at is not None
        problem = _problem(chr(letters[cleaned.unknown_at - 1]), cleaned.unknown_at)
        if self.options.unknown == "error":
            path, _, number = source.rpartition(":")
            raise DataError(
                f"{path}, record {number} ({name}): {problem}. Mend the record, or set the option unknown to replace "
                "or skip."
            )
        if self.options.unknown == "skip":
            report.skipped(source, "a character that is no residue", f"{name}: {problem}")
            return False
        report.repaired(source, "characters that are no residue written as X", f"{name}: {problem}")
        return True

    def _told(self, cleaned: Cleaned, source: str, report: Report) -> str:
        """The canonical text, with what became of its characters told to the report."""
        text = cleaned.text
        if not any(cleaned[1:]):
            return text
        report.tally("lower-case residues upper-cased", cleaned.lower, source)
        report.tally("gaps removed", cleaned.removed, source)
        report.tally("gaps . written as -", cleaned.aliased, source)
        report.tally("characters that are no residue written as X", cleaned.unknown, source)
        if not cleaned.rare and not cleaned.aliased:
            return text
        report.note("gaps kept", text.count("-"))
        for letter, meaning in _MEANINGS.items():
            report.note(meaning, text.count(letter) - (cleaned.unknown if letter == "X" else 0))
        inner = text.rstrip("*")
        terminal = len(text) - len(inner)
        report.note("inner stops kept", inner.count("*"))
        if self.options.terminal_stop == "strip":
            report.tally("terminal stops stripped", terminal, source)
            return inner
        report.note("terminal stops kept", terminal)
        return text


def _problem(character: str, place: int) -> str:
    return f"{character!r} at position {place} of the sequence is no residue"
