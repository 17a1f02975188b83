"""Proteins: one token a residue, one document a protein, from FASTA files such as UniProt's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from domains.sequences.alphabet import Alphabet, Cleaned, each_character, places
from domains.sequences.fasta import Names, looks_like_fasta, read_fasta, write_fasta
from domains.protein.tables import sample_tables
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STANDARD = "LAGVESIKRDTPNQFYMHCW"
"""The twenty amino acids, in the order of ProtBert's vocabulary (Elnaggar et al. 2021)."""

RARE = "XUBZOJ*"
"""X any residue, U selenocysteine, B Asp or Asn, Z Glu or Gln, O pyrrolysine, J Leu or Ile; * a stop.

The codes are those of IUPAC-IUB (1984) and its later additions.
"""

_NUCLEOTIDES = b"ACGTUN"
_SUSPICIOUS_LENGTH = 30  # A, C, G, T and N make up a third of residues: by chance this is one in 10^14

_ACCESSION = re.compile(r"(?:sp|tr)\|([A-Za-z0-9.-]+)\|\S*")
_UNIPROT_FIELD = re.compile(r"\s(OS|OX|GN|PE|SV)=")
_UNIREF_FIELD = re.compile(r"\s(n|Tax|TaxID|RepID)=")
_NCBI_ORGANISM = re.compile(r"\s\[([^][]+)\]$")

_CHOICES = {
    "gaps": ("remove", "keep"),
    "terminal_stop": ("strip", "keep"),
    "unknown": ("replace", "skip", "error"),
}


@dataclasses.dataclass
class ProteinOptions:
    """What is done to characters that are no plain residue. Lower case is always upper-cased."""

    gaps: Literal["remove", "keep"] = "remove"
    """Alignment gaps, - and . alike: taken out, or kept as the token "-"."""

    terminal_stop: Literal["strip", "keep"] = "strip"
    """A * that ends a translated protein: taken off, or kept as a token. A * inside is always kept."""

    unknown: Literal["replace", "skip", "error"] = "replace"
    """A record with any other character, such as a digit: the character becomes X, the record is left out, or
    the run stops."""

    def __post_init__(self) -> None:
        for key, values in _CHOICES.items():
            if (value := getattr(self, key)) not in values:
                raise ConfigError(
                    f'The protein option {key} is "{value}"; it is one of {", ".join(values)}.'
                    + nearest(str(value), values)
                )


class Protein(Domain):
    """Proteins by residue.

    The vocabulary is fixed: the special tokens, the 20 amino acids, the six further IUPAC letters, ``*``, and
    ``-`` where gaps are kept. The masking unit is the token.

    Example:
        >>> protein = Protein()
        >>> protein.use(protein.tokenizer([], None))
        >>> protein.decode(protein.encode([protein.canonical("mktay-ia*")]).ids)
        'MKTAYIA'
    """

    name = "protein"
    Options = ProteinOptions
    formats: ClassVar[dict[str, str]] = dict.fromkeys(
        (".fasta", ".fa", ".fas", ".faa", ".pep", ".pro"), "FASTA, proteins"
    )
    symbol = "residue"
    pairs = False  # a protein is one segment

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
        """By the ending, or where that says nothing by a first record that is written in residues."""
        return super().reads(path) or looks_like_fasta(path, (STANDARD + RARE).encode())

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a protein, in one segment, with its description, organism and gene if told.

        Raises:
            DataError: As :func:`domains.sequences.fasta.read_fasta` does, and for an unknown character where the option
                ``unknown`` is "error".
        """
        names = Names(report)
        for record in read_fasta(path, report):
            source = f"{path}:{record.number}"
            name, metadata = parse_header(record.header)
            cleaned = self._alphabet.clean(record.sequence)
            if cleaned.unknown_at:
                problem = _problem(chr(record.sequence[cleaned.unknown_at - 1]), cleaned.unknown_at)
                if self.options.unknown == "error":
                    raise DataError(
                        f"{path}, record {record.number} ({name}): {problem}. Mend the record, or set the "
                        "option unknown to replace or skip."
                    )
                if self.options.unknown == "skip":
                    report.skipped(source, "a character that is no residue")
                    continue
            text = self._tallied(cleaned, report)
            if not text:
                report.skipped(source, "nothing but gaps or a stop")
                continue
            if cleaned.unknown_at:
                report.repaired(source, "characters that are no residue written as X")
            if len(text) >= _SUSPICIOUS_LENGTH and not text.encode("ascii").translate(None, _NUCLEOTIDES):
                report.tally("proteins spelled with A C G T U N only, as nucleotides are")
            yield Document(names.unique(name, record.number), [text], source, metadata)

    def canonical(self, raw: str) -> str:
        """Upper case, without blanks and gaps, as :meth:`read` does it to a record.

        Raises:
            DataError: A character is no residue, and the option ``unknown`` is not "replace".
        """
        text = "".join(raw.split())
        cleaned = self._alphabet.clean(text.encode("latin-1", "replace"))
        if cleaned.unknown_at and self.options.unknown != "replace":
            problem = _problem(text[cleaned.unknown_at - 1], cleaned.unknown_at)
            raise DataError(f"{raw[:40]!r} is no protein: {problem}. Mend it, or set the option unknown to replace.")
        return self._tallied(cleaned, Report())

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A token a residue; ``segments`` are not looked at.

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
        return self._alphabet.tokenizer(self._letters, by_residue, decoders.Fuse())

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer whose tokens are single residues.

        Raises:
            ConfigError: An amino acid has no token of its own.
        """
        vocabulary = tokenizer.get_vocab()
        if missing := [letter for letter in STANDARD if letter not in vocabulary]:
            raise ConfigError(
                f"This tokenizer has no token for the residue {missing[0]}, so it was not made for proteins "
                "by residue: set tokenizer to null, or to one that the protein domain made."
            )
        super().use(tokenizer)
        self._ids = self._alphabet.ids(vocabulary, vocabulary[tokenizer.model.unk_token])

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """The tokenizer's own ids, looked up for all residues at once; no units, for each residue is one.

        Raises:
            DomainError: No tokenizer is in use yet.
        """
        _ = self.vocabulary  # raises where none is in use
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

    def _tallied(self, cleaned: Cleaned, report: Report) -> str:
        """The canonical text, with what became of its characters told to the report."""
        text = cleaned.text
        report.tally("lower-case residues upper-cased", cleaned.lower)
        report.tally("gaps removed", cleaned.removed)
        report.tally("characters that are no residue written as X", cleaned.unknown)
        report.tally("gaps kept", text.count("-"))
        terminal = text.endswith("*")
        report.tally("inner stops", text.count("*") - terminal)
        report.tally("terminal stops", int(terminal))
        if terminal and self.options.terminal_stop == "strip":
            text = text[:-1]
        return text


def parse_header(header: str) -> tuple[str, dict[str, str]]:
    """A FASTA header's id and metadata, as UniProt, UniRef and NCBI write it.

    >>> parse_header("sp|P53508|CSSA1_ECOLX CS6 fimbrial subunit A OS=Escherichia coli GN=cssA PE=1 SV=1")
    ('P53508', {'description': 'CS6 fimbrial subunit A', 'organism': 'Escherichia coli', 'gene': 'cssA'})
    >>> parse_header("NP_995567.1 putative transposase [Yersinia pestis]")
    ('NP_995567.1', {'description': 'putative transposase', 'organism': 'Yersinia pestis'})
    """
    name, _, rest = header.partition(" ")
    if accession := _ACCESSION.fullmatch(name):
        name = accession[1]
    pattern = _UNIREF_FIELD if name.startswith("UniRef") else _UNIPROT_FIELD
    description, *fields = pattern.split(" " + rest)
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    organism = values.get("OS") or values.get("Tax", "")
    if not values and (bracketed := _NCBI_ORGANISM.search(description)):
        description, organism = description[: bracketed.start()], bracketed[1]
    metadata = {"description": description, "organism": organism, "gene": values.get("GN", "")}
    return name, {key: value.strip() for key, value in metadata.items() if value.strip()}


def _problem(character: str, place: int) -> str:
    return f"{character!r} at position {place} of the sequence is no residue"
