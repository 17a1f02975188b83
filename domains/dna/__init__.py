"""DNA from FASTA files: a document a contig, and tokens by base, by overlapping k-mers or by blocks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from domains.sequences.alphabet import Alphabet, Cleaned, each_character, places
from domains.dna.tables import sample_tables
from domains.dna.uci import uci_examples
from domains.sequences.fasta import Names, looks_like_fasta, read_fasta, write_fasta
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Document, Domain, Encoded, Example, Report, Sample
from seqbert.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BASES = "ATCG"
"""The four bases, in the order in which the vocabularies of DNABERT (Ji et al. 2021) count."""

AMBIGUOUS = "NRYSWKMBDHV"
"""The IUPAC codes for more than one base (NC-IUB 1984)."""

_COMPLEMENTS = {
    "dna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCAAYRSWMKVHDBNtgcaayrswmkvhdbn"),
    "rna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "UGCAAYRSWMKVHDBNugcaayrswmkvhdbn"),
}
_NO_COMPLEMENT = re.compile(r"[^ACGTURYSWKMBDHVNacgturyswkmbdhvn.\-]")
_AMBIGUOUS_TO_N = str.maketrans(AMBIGUOUS, "N" * len(AMBIGUOUS))

# A third of a usual protein is E, F, I, L, P and Q, which stand for no nucleotide.
_PROTEIN_ONLY = b"EFILPQefilpq"
_PROTEIN_SHARE = 0.2

_LONGEST_K = 8
_CHOICES = {
    "tokens": ("base", "kmer", "block"),
    "unit": ("span", "codon"),
    "ambiguity": ("keep", "n"),
    "n": ("split", "keep", "drop"),
    "unknown": ("replace", "skip", "error"),
}


@dataclasses.dataclass
class DNAOptions:
    """How bases become tokens, and what is done to letters that are no plain base.

    Lower case (soft-masked repeats) is always upper-cased, U written as T, and the gaps - and . taken out.
    """

    tokens: Literal["base", "kmer", "block"] = "base"
    """base: a token a base. kmer: overlapping k-mers, one begun at each base, as in DNABERT (Ji et al. 2021).
    block: k bases a token, side by side from the segment's start; the last may be shorter, and one with an
    ambiguous base is spelled by bases."""

    k: int = 6
    """Bases in a k-mer or block, and tokens in the masking unit "span"; from 1 to 8."""

    unit: Literal["span", "codon"] = "span"
    """What is masked as one where the objective masks by unit. span: k consecutive tokens. codon: three
    bases, counted from the segment's start; needs tokens by base, or blocks of 3."""

    ambiguity: Literal["keep", "n"] = "keep"
    """IUPAC codes such as R. keep: they have tokens of their own, but a k-mer that holds one is unknown.
    n: they are written as N."""

    n: Literal["split", "keep", "drop"] = "split"
    """Runs of n_run or more N. split: the contig is cut there into segments, without the run. keep: they
    stay. drop: they are taken out and what they parted is joined."""

    n_run: int = 4
    """Fewer N than this in a row are uncertain bases, and stay; this many are a gap in the assembly."""

    unknown: Literal["replace", "skip", "error"] = "replace"
    """A record with any other character, such as a digit: the character becomes N, the record is left out, or
    the run stops."""

    def __post_init__(self) -> None:
        for key, values in _CHOICES.items():
            if (value := getattr(self, key)) not in values:
                raise ConfigError(
                    f'The dna option {key} is "{value}"; it is one of {", ".join(values)}.'
                    + nearest(str(value), values)
                )
        if not 1 <= self.k <= _LONGEST_K:
            raise ConfigError(
                f"The dna option k is {self.k}; it is from 1 to {_LONGEST_K}, for a vocabulary has 4^k words."
            )
        if self.n_run < 1:
            raise ConfigError(f"The dna option n_run is {self.n_run}; a run of N has at least 1.")
        if self.unit == "codon" and not (self.tokens == "base" or (self.tokens == "block" and self.k == 3)):
            raise ConfigError(
                f'The dna option unit is "codon", which is three bases, but tokens is "{self.tokens}" with k '
                f"{self.k}: set tokens to base, or to block with k 3, or unit to span."
            )


class DNA(Domain):
    """DNA, and RNA written as DNA.

    Vocabularies, behind the special tokens: by base, the four bases and the IUPAC codes; by k-mer, all 4^k
    k-mers in the order of DNABERT's; by block, all words of 1 to k bases and the IUPAC codes.

    Example:
        >>> dna = DNA(DNAOptions(tokens="kmer", k=3))
        >>> dna.use(dna.tokenizer([], None))
        >>> [dna.vocabulary.id_to_token(i) for i in dna.encode(["ACGTA"]).ids]
        ['ACG', 'CGT', 'GTA']
        >>> dna.decode(dna.encode(["ACGTA"]).ids)
        'ACGTA'
    """

    name = "dna"
    Options = DNAOptions
    formats: ClassVar[dict[str, str]] = dict.fromkeys(
        (".fasta", ".fa", ".fas", ".fna", ".ffn", ".frn"), "FASTA, nucleotides"
    )
    symbol = "base"
    pairs = False  # a contig is one segment, but where runs of N split it

    options: DNAOptions

    _alphabet = Alphabet(plain=BASES, rare=AMBIGUOUS, replacement="N", aliases={"U": "T"}, removed="-.")

    def __init__(self, options: DNAOptions | None = None) -> None:
        super().__init__(options)
        self._gap = re.compile(f"N{{{self.options.n_run},}}")

    @property
    def unit(self) -> str:
        """The option ``unit``: "span", k consecutive tokens, or "codon", three bases."""
        return self.options.unit

    @property
    def overlap(self) -> int:
        """K - 1 for overlapping k-mers, else 0."""
        return self.options.k - 1 if self.options.tokens == "kmer" else 0

    def reads(self, path: Path) -> bool:
        """By the ending, or where that says nothing by a first record that is written in nucleotides."""
        return super().reads(path) or looks_like_fasta(path, (BASES + AMBIGUOUS + "U").encode())

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a contig; its segments are what stands between long runs of N.

        Raises:
            DataError: As :func:`domains.sequences.fasta.read_fasta` does, and for an unknown character where the option
                ``unknown`` is "error".
        """
        names = Names(report)
        for record in read_fasta(path, report):
            source = f"{path}:{record.number}"
            name, _, description = record.header.partition(" ")
            cleaned = self._alphabet.clean(record.sequence)
            if cleaned.unknown_at:
                if _is_protein(record.sequence):
                    report.skipped(source, "a protein, not nucleotides")
                    continue
                problem = _problem(chr(record.sequence[cleaned.unknown_at - 1]), cleaned.unknown_at)
                if self.options.unknown == "error":
                    raise DataError(
                        f"{path}, record {record.number} ({name}): {problem}. Mend the record, or set the "
                        "option unknown to replace or skip."
                    )
                if self.options.unknown == "skip":
                    report.skipped(source, "a character that is no nucleotide")
                    continue
            segments = self._segments(self._tallied(cleaned, report), report)
            if not segments:
                report.skipped(source, "no stretch of bases that is long enough for a token")
                continue
            if cleaned.unknown_at:
                report.repaired(source, "characters that are no nucleotide written as N")
            metadata = {"description": description.strip()} if description.strip() else {}
            yield Document(names.unique(name, record.number), segments, source, metadata)

    def examples(self, path: Path, report: Report) -> Iterator[Example] | None:
        """Yields the rows of UCI's splice junctions or promoters; see :func:`domains.dna.uci.uci_examples`."""
        return uci_examples(path, self.canonical, report)

    def canonical(self, raw: str) -> str:
        """Upper-case DNA without blanks and gaps, as :meth:`read` does it to a record; it is not split at N.

        Raises:
            DataError: A character is no nucleotide, and the option ``unknown`` is not "replace".
        """
        text = "".join(raw.split())
        cleaned = self._alphabet.clean(text.encode("latin-1", "replace"))
        if cleaned.unknown_at and self.options.unknown != "replace":
            problem = _problem(text[cleaned.unknown_at - 1], cleaned.unknown_at)
            raise DataError(f"{raw[:40]!r} is no DNA: {problem}. Mend it, or set the option unknown to replace.")
        text = self._tallied(cleaned, Report())
        return self._gap.sub("", text) if self.options.n == "drop" else text

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """The tokenizer of the chosen tokens; ``segments`` are not looked at.

        The one for k-mers takes them with blanks between, as DNABERT's own does; :meth:`encode` cuts them.

        Raises:
            ConfigError: ``vocab_size`` is below what the tokens need.
        """
        from tokenizers import Regex, decoders, pre_tokenizers

        k = self.options.k
        words = [word for size in self._word_sizes() for word in _words(size)]
        if self.options.tokens != "kmer":
            words += AMBIGUOUS
        needed = len(SPECIAL_TOKENS) + len(words)
        if vocab_size is not None and vocab_size < needed:
            raise ConfigError(
                f"The dna vocabulary with tokens {self.options.tokens} and k {k} needs {needed} tokens, but "
                f"vocab_size is {vocab_size}: leave it out (null), give {needed} or more, or lower k."
            )
        if self.options.tokens == "kmer":
            return self._alphabet.tokenizer(words, pre_tokenizers.WhitespaceSplit())
        patterns = ["."]
        if self.options.tokens == "block":
            patterns = [
                f".{{1,{k}}}",
                rf"\A[{BASES}]+\z|.",
            ]  # blocks, of which those not all bases are spelled
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        return self._alphabet.tokenizer(words, pre_tokenizers.Sequence(cuts), decoders.Fuse())

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer of the chosen tokens: one that this domain made, or DNABERT's for k-mers.

        Raises:
            ConfigError: The tokenizer lacks one of the tokens that the options ask for.
        """
        vocabulary = tokenizer.get_vocab()
        words = {size: _words(size) for size in self._word_sizes()}
        if missing := next((word for same in words.values() for word in same if word not in vocabulary), None):
            raise ConfigError(
                f'This tokenizer has no token "{missing}", which the dna options tokens '
                f"{self.options.tokens} and k {self.options.k} ask for: set tokenizer to null, or give the "
                "options that it was made with."
            )
        super().use(tokenizer)
        self._unknown_id = vocabulary[tokenizer.model.unk_token]
        self._letter_ids = self._alphabet.ids(vocabulary, self._unknown_id)
        self._word_ids = {size: np.array([vocabulary[word] for word in same], np.int32) for size, same in words.items()}
        if self.options.tokens == "kmer":
            self._kmer_codes = np.full(max(vocabulary.values()) + 1, _NO_KMER)
            self._kmer_codes[[vocabulary[t] for t in ("[PAD]", "[CLS]", "[SEP]") if t in vocabulary]] = _NO_BASE
            self._kmer_codes[self._word_ids[self.options.k]] = np.arange(4**self.options.k)

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """Tokens of canonical texts, all at once.

        A text that is shorter than a k-mer is one unknown token. Units are numbered from 0 in each text: the
        token's number // k for "span", the number of its first base // 3 for "codon".

        Raises:
            DomainError: No tokenizer is in use yet.
        """
        _ = self.vocabulary  # raises where none is in use
        letters = np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        cut = {"base": self._bases, "kmer": self._kmers, "block": self._blocks}[self.options.tokens]
        ids, starts, ends, lengths = cut(letters, sizes)
        units = starts // 3 if self.options.unit == "codon" else places(lengths) // self.options.k
        spans = np.stack([starts, ends], axis=1).astype(np.int64) if offsets else None
        return Encoded(ids, lengths, units.astype(np.int32, copy=False), spans)

    def decode(self, ids: Sequence[int]) -> str:
        """The bases of token ids; special tokens are left out.

        Of overlapping k-mers, each base is what most of the k-mers that cover it say (of equals, the first in
        :data:`BASES`), and N where none does: [UNK] and [MASK] hold their places.
        """
        if self.options.tokens != "kmer":
            return super().decode(ids)
        _ = self.vocabulary  # raises where none is in use
        k = self.options.k
        codes = self._kmer_codes[np.asarray(ids, np.int64)]
        codes = codes[codes != _NO_BASE]
        if not len(codes):
            return ""
        votes = np.zeros((len(codes) + k - 1, len(BASES)), np.int32)
        (known,) = np.nonzero(codes >= 0)
        for place in range(k):
            votes[known + place, codes[known] // 4 ** (k - 1 - place) % 4] += 1
        letters = np.frombuffer(BASES.encode(), np.uint8)[votes.argmax(axis=1)]
        return np.where(votes.any(axis=1), letters, np.uint8(ord("N"))).tobytes().decode("ascii")

    def words(self, text: str) -> np.ndarray:
        """Every base, ``[bases, 2]``."""
        return each_character(text)

    def symbols(self, text: str) -> int:
        """Bases. Of an overlapping k-mer 1: it begins one base further on, and shares the rest."""
        return 1 if self.options.tokens == "kmer" and len(text) == self.options.k else len(text)

    def augmentations(self) -> Mapping[str, Augmentation]:
        """``reverse_complement``: with even odds the other strand, read in its own direction.

        Labels move with their tokens. A last block that is not full stands first on the other strand: its
        tokens spell the reverse complement, though :meth:`encode` would cut that at other places.
        """
        vocabulary = self.vocabulary.get_vocab()
        complements = np.arange(max(vocabulary.values()) + 1)
        for token, index in vocabulary.items():
            if not _NO_COMPLEMENT.search(token):
                complements[index] = vocabulary.get(reverse_complement(token), index)
        return {"reverse_complement": partial(_either_strand, complements)}

    def write(self, text: str, path: Path) -> None:
        """Writes one FASTA record, 60 bases a line."""
        write_fasta(path, "dna", text)

    def sample(self) -> Sample:
        """Stretches of a bacterial genome; ``sample/SOURCE.md`` says which and how chosen."""
        return Sample(
            about="300 stretches of 3 kb of Escherichia coli 536 (NC_008253.1, INSDC: free and unrestricted)",
            files=[Path(__file__).parent / "sample" / "escherichia_coli_536.fasta.gz"],
            tables=sample_tables(self),
        )

    # Letters

    def _tallied(self, cleaned: Cleaned, report: Report) -> str:
        """The canonical text, with what became of its characters told to the report."""
        text = cleaned.text
        report.tally("lower-case bases upper-cased", cleaned.lower)
        report.tally("U written as T", cleaned.aliased)
        report.tally("gaps removed", cleaned.removed)
        report.tally("characters that are no nucleotide written as N", cleaned.unknown)
        if cleaned.rare:
            uncertain = text.count("N") - cleaned.unknown
            report.tally("N", uncertain)
            if self.options.ambiguity == "n":
                report.tally("ambiguity codes written as N", cleaned.rare - uncertain)
                text = text.translate(_AMBIGUOUS_TO_N)
            else:
                report.tally("ambiguity codes kept", cleaned.rare - uncertain)
        return text

    def _segments(self, text: str, report: Report) -> list[str]:
        """The stretches of a contig that become tokens."""
        parts = [text]
        if self.options.n != "keep" and "N" in text:
            parts = self._gap.split(text)
            done = "split at" if self.options.n == "split" else "taken out"
            report.tally(f"runs of {self.options.n_run} or more N {done}", len(parts) - 1)
            if self.options.n == "drop":
                parts = ["".join(parts)]
        parts = [part for part in parts if part]
        segments = [part for part in parts if len(part) > self.overlap]
        report.tally("stretches shorter than a k-mer left out", len(parts) - len(segments))
        return segments

    # Tokens. Each of the three cuts gives ids, starts and ends in the token's text, and tokens of each text.

    def _word_sizes(self) -> Sequence[int]:
        """How many bases the words of the vocabulary have."""
        k = self.options.k
        return {"base": (1,), "kmer": (k,), "block": range(1, k + 1)}[self.options.tokens]

    def _bases(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        starts = places(sizes)
        return self._letter_ids[letters], starts, starts + 1, sizes

    def _kmers(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        k = self.options.k
        digits = np.append(_DIGITS[letters], np.full(k - 1, _NO_DIGIT))
        codes = np.zeros(len(letters), np.int32)
        unknown = np.zeros(len(letters), bool)
        for place in range(k):
            digit = digits[place : place + len(letters)]
            codes = codes * 4 + (digit & 3)
            unknown |= digit == _NO_DIGIT
        lengths = np.where(sizes > 0, np.maximum(sizes - self.overlap, 1), 0)
        short = (sizes > 0) & (sizes < k)
        unknown[(np.cumsum(sizes) - sizes)[short]] = True
        starts = places(sizes)
        begins = starts < np.repeat(lengths, sizes)
        ids = np.where(unknown, np.int32(self._unknown_id), self._word_ids[k][codes])[begins]
        starts = starts[begins]
        return ids, starts, np.minimum(starts + k, np.repeat(sizes, lengths)), lengths

    def _blocks(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        in_text = places(sizes)
        begins = in_text % self.options.k == 0
        (block_starts,) = np.nonzero(begins)
        block_sizes = np.diff(block_starts, append=len(letters))
        digits = _DIGITS[letters]
        ambiguous = np.bincount(np.repeat(np.arange(len(block_sizes)), block_sizes), digits == _NO_DIGIT) > 0
        begins |= np.repeat(ambiguous, block_sizes)

        (starts,) = np.nonzero(begins)
        token_sizes = np.diff(starts, append=len(letters))
        ids = self._letter_ids[letters[starts]]
        for size in range(2, self.options.k + 1):
            (chosen,) = np.nonzero(token_sizes == size)
            codes = np.zeros(len(chosen), np.int32)
            for place in range(size):
                codes = codes * 4 + digits[starts[chosen] + place]
            ids[chosen] = self._word_ids[size][codes]
        lengths = np.diff(np.searchsorted(starts, np.append(0, np.cumsum(sizes))))
        return ids, in_text[starts], in_text[starts] + token_sizes, lengths


def reverse_complement(sequence: str, alphabet: Literal["dna", "rna"] = "dna") -> str:
    """The other strand, read in its own direction. Case is kept, and ambiguity codes get their complements.

    Args:
        sequence: Nucleotides, IUPAC codes, and the gaps - and ., which stay what they are.
        alphabet: Whether A pairs with T or with U in what is returned.

    Raises:
        DataError: A character is no nucleotide.

    >>> reverse_complement("ACHVTWN")
    'NWABDGT'
    >>> reverse_complement("GGAU", "rna")
    'AUCC'
    """
    if wrong := _NO_COMPLEMENT.search(sequence):
        raise DataError(f"There is no reverse complement: {_problem(wrong[0], wrong.start() + 1)}.")
    return sequence.translate(_COMPLEMENTS[alphabet])[::-1]


_Cut: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_NO_DIGIT = np.uint8(4)
_DIGITS = np.full(256, _NO_DIGIT)
for _digit, _letters in enumerate(("Aa", "TtUu", "Cc", "Gg")):
    _DIGITS[list(_letters.encode())] = _digit

_NO_KMER, _NO_BASE = -1, -2  # instead of a k-mer's code: a token of unknown bases, and one of no base at all


def _words(size: int) -> list[str]:
    """All words of so many bases; each stands at the place that its digits in base 4 say."""
    return ["".join(letters) for letters in product(BASES, repeat=size)]


def _either_strand(
    complements: np.ndarray, ids: np.ndarray, units: np.ndarray | None, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    source = np.arange(len(ids))
    if generator.random() < 0.5:
        return ids, source
    return complements[ids[::-1]].astype(ids.dtype), source[::-1].copy()


def _is_protein(sequence: bytes) -> bool:
    return len(sequence) - len(sequence.translate(None, _PROTEIN_ONLY)) > _PROTEIN_SHARE * len(sequence)


def _problem(character: str, place: int) -> str:
    return f"{character!r} at position {place} of the sequence is no nucleotide"
