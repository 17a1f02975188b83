"""DNA: tokens by base, by overlapping k-mers (DNABERT) or by blocks of k bases, one document a contig, from FASTA."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from domains.fasta import Alphabet, Cleaned, Names, looks_like_fasta, read_fasta, write_fasta
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BASES = "ATCG"
"""The four bases in the order in which DNABERT's vocabulary counts (Ji et al. 2021)."""

AMBIGUOUS = "NRYSWKMBDHV"
"""The IUPAC codes for more than one base (Cornish-Bowden 1985)."""

_COMPLEMENTS = {
    "dna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCAAYRSWMKVHDBNtgcaayrswmkvhdbn"),
    "rna": str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "UGCAAYRSWMKVHDBNugcaayrswmkvhdbn"),
}
_NO_CODE = re.compile(r"[^ACGTURYSWKMBDHVNacgturyswkmbdhvn.\-]")
_TO_N = str.maketrans(AMBIGUOUS, "N" * len(AMBIGUOUS))
_LONGEST_K = 8
# Of an average protein a third is E, F, I, L, P or Q, which stand for no nucleotide.
_PROTEIN_ONLY = b"EFILPQefilpq"
_PROTEIN_SHARE = 0.2

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
    """base: a token a base. kmer: overlapping k-mers, one begun at each base (DNABERT, Ji et al. 2021). block: k bases
    a token side by side; a shorter rest is a shorter token, and a block with an ambiguous base is spelled by bases."""

    k: int = 6
    """Bases of a k-mer or block, and tokens of the masking unit "span"; 1 to 8."""

    unit: Literal["span", "codon"] = "span"
    """What is masked as one where the objective masks units: k consecutive tokens, or the three bases of a codon,
    counted from the segment's start (tokens by base, or blocks of 3)."""

    ambiguity: Literal["keep", "n"] = "keep"
    """IUPAC codes such as R: kept (tokens of their own; a k-mer that holds one is unknown), or written as N."""

    n: Literal["split", "keep", "drop"] = "split"
    """Runs of at least n_run N: the contig is split there into segments, the run is kept, or it is taken out."""

    n_run: int = 4
    """Fewer N than this are uncertain bases and stay; this many or more are a gap in the assembly."""

    unknown: Literal["replace", "skip", "error"] = "replace"
    """A record with any other character, such as a digit: the character becomes N, the record is left out, or the
    run stops."""

    def __post_init__(self) -> None:
        for key, values in _CHOICES.items():
            if (value := getattr(self, key)) not in values:
                raise ConfigError(
                    f'The dna option {key} is "{value}"; it is one of {", ".join(values)}.'
                    + nearest(str(value), values)
                )
        if not 1 <= self.k <= _LONGEST_K:
            raise ConfigError(
                f"The dna option k is {self.k}; it is from 1 to {_LONGEST_K}, for the vocabulary grows as 4^k."
            )
        if self.n_run < 1:
            raise ConfigError(f"The dna option n_run is {self.n_run}; a run is at least 1 N long.")
        if self.unit == "codon" and not (self.tokens == "base" or (self.tokens == "block" and self.k == 3)):
            raise ConfigError(
                f'The dna option unit is "codon", which is three bases, but tokens is "{self.tokens}" with k {self.k}: set '
                "tokens to base, or to block with k 3, or unit to span."
            )


class DNA(Domain):
    """DNA, and RNA written as DNA.

    Vocabularies, behind the special tokens: by base, the four bases and the IUPAC codes; by k-mer, all 4^k k-mers in
    the order of DNABERT's; by block, all sequences of 1 to k bases and the IUPAC codes.

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
        (".fasta", ".fa", ".fas", ".fna", ".ffn", ".frn", ".seq"), "FASTA"
    )
    symbol = "base"

    options: DNAOptions

    _alphabet = Alphabet(plain=BASES, rare=AMBIGUOUS, replacement="N", aliases={"U": "T"}, removed="-.")

    def __init__(self, options: DNAOptions | None = None) -> None:
        super().__init__(options)
        self._gap = re.compile(f"N{{{self.options.n_run},}}")

    @property
    def unit(self) -> str:
        """ "span": k consecutive tokens; or "codon": three bases."""
        return self.options.unit

    @property
    def overlap(self) -> int:
        """k - 1 for overlapping k-mers, else 0."""
        return self.options.k - 1 if self.options.tokens == "kmer" else 0

    def reads(self, path: Path) -> bool:
        """By the ending, or where that says nothing by a first record that is written in nucleotides."""
        return super().reads(path) or looks_like_fasta(path, (BASES + AMBIGUOUS + "U").encode())

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a contig; its segments are what stands between long runs of N.

        Raises:
            DataError: As :func:`domains.fasta.read_fasta` does, and for an unknown character where the option
                ``unknown`` is "error".
        """
        names = Names(report)
        for record in read_fasta(path, report):
            source = f"{path}:{record.number}"
            name, _, description = record.header.partition(" ")
            cleaned = self._alphabet.clean(record.sequence)
            if cleaned.unknown_at:
                problem = _problem(cleaned.unknown_at)
                if _is_protein(record.sequence):
                    report.skipped(source, "a protein, not nucleotides")
                    continue
                if self.options.unknown == "error":
                    raise DataError(
                        f"{path}, record {record.number} ({name}): {problem}. Mend the record, or set the option unknown to "
                        "replace or skip."
                    )
                if self.options.unknown == "skip":
                    report.skipped(source, "a character that is no nucleotide")
                    continue
            segments = self._segments(self._tallied(cleaned, report), report)
            if not segments:
                report.skipped(source, "no stretch of bases long enough for a token")
                continue
            if cleaned.unknown_at:
                report.repaired(source, "characters that are no nucleotide written as N")
            metadata = {"description": description.strip()} if description.strip() else {}
            yield Document(names.unique(name, record.number), segments, source, metadata)

    def canonical(self, raw: str) -> str:
        """Upper-case DNA without blanks and gaps, as :meth:`read` does it to a record; one string is not split at N.

        Raises:
            DataError: A character is no nucleotide, and the option ``unknown`` is not "replace".
        """
        cleaned = self._alphabet.clean("".join(raw.split()).encode("latin-1", "replace"))
        if cleaned.unknown_at and self.options.unknown != "replace":
            raise DataError(
                f"{raw[:40]!r} is no DNA: {_problem(cleaned.unknown_at)}. Mend it, or set the option unknown to replace."
            )
        text = self._tallied(cleaned, Report())
        return "".join(self._gap.split(text)) if self.options.n == "drop" else text

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """The tokenizer of the chosen tokens; ``segments`` are not looked at.

        The one for k-mers takes them with blanks between, as DNABERT's own does; :meth:`encode` cuts them.

        Raises:
            ConfigError: ``vocab_size`` is below what the tokens need.
        """
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

        tokens = [*SPECIAL_TOKENS, *self._spellings()]
        if vocab_size is not None and vocab_size < len(tokens):
            raise ConfigError(
                f"The dna vocabulary with tokens {self.options.tokens} and k {self.options.k} needs {len(tokens)} tokens, but "
                f"vocab_size is {vocab_size}: leave it out (null), or give {len(tokens)} or more, or choose a smaller k."
            )
        vocabulary = {token: index for index, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Replace(letter.lower(), letter) for letter in BASES + AMBIGUOUS]
            + [normalizers.Replace(letter, "T") for letter in "Uu"]
        )
        if self.options.tokens == "kmer":
            tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        elif self.options.tokens == "block":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(f".{{1,{self.options.k}}}"), "isolated"),
                    pre_tokenizers.Split(Regex(rf"\A[{BASES}]+\z|."), "isolated"),
                ]
            )
            tokenizer.decoder = decoders.Fuse()
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
            tokenizer.decoder = decoders.Fuse()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
        )
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer of the chosen tokens: one that this domain made, or DNABERT's for k-mers.

        Raises:
            ConfigError: The tokenizer lacks one of the tokens that the options ask for.
        """
        vocabulary = tokenizer.get_vocab()
        lengths = {"base": (1,), "kmer": (self.options.k,), "block": range(1, self.options.k + 1)}[
            self.options.tokens
        ]
        words = {length: _words(length) for length in lengths}
        if missing := next((w for group in words.values() for w in group if w not in vocabulary), None):
            raise ConfigError(
                f'This tokenizer has no token "{missing}", which the dna options tokens {self.options.tokens} and k '
                f"{self.options.k} ask for: set tokenizer to null, or give the options with which it was made."
            )
        super().use(tokenizer)
        self._unknown_id = int(tokenizer.token_to_id(tokenizer.model.unk_token))
        self._word_ids = {
            length: np.array([vocabulary[word] for word in group], np.int32)
            for length, group in words.items()
        }
        self._letter_ids = np.full(256, self._unknown_id, np.int32)
        for letter in BASES + AMBIGUOUS:
            if letter in vocabulary:
                self._letter_ids[[ord(letter), ord(letter.lower())]] = vocabulary[letter]
        self._letter_ids[[ord("U"), ord("u")]] = self._letter_ids[ord("T")]
        if self.options.tokens == "kmer":
            self._kmer_codes = np.full(max(vocabulary.values()) + 1, -1, np.int64)
            self._kmer_codes[[vocabulary[t] for t in ("[PAD]", "[CLS]", "[SEP]") if t in vocabulary]] = (
                _NO_PLACE
            )
            self._kmer_codes[self._word_ids[self.options.k]] = np.arange(4**self.options.k)

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """Tokens of canonical texts, all at once.

        A text that is shorter than a k-mer is one unknown token. Units are numbered from 0 in each text: the token's
        number // k for "span", its first base // 3 for "codon".
        """
        letters = np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        cut = {"base": self._bases, "kmer": self._kmers, "block": self._blocks}[self.options.tokens]
        ids, starts, ends, lengths = cut(letters, sizes)
        text_starts = np.repeat(_starts(sizes).astype(starts.dtype), lengths)
        if self.options.unit == "codon":
            units = (starts - text_starts) // 3
        else:
            units = _places(lengths) // self.options.k
        spans = (
            np.stack([starts - text_starts, ends - text_starts], axis=1).astype(np.int64) if offsets else None
        )
        return Encoded(ids, lengths, units.astype(np.int32, copy=False), spans)

    def decode(self, ids: Sequence[int]) -> str:
        """The bases of token ids; special tokens are left out.

        Of overlapping k-mers each base is what most of the k-mers that cover it say, the earlier of :data:`BASES` where
        they are even, and N where no known one does ([UNK] and [MASK] hold their place).
        """
        if self.options.tokens != "kmer":
            return super().decode(ids)
        k = self.options.k
        codes = self._kmer_codes[np.asarray(ids, np.int64)]
        codes = codes[codes != _NO_PLACE]
        if not len(codes):
            return ""
        votes = np.zeros((len(codes) + k - 1, len(BASES)), np.int32)
        (known,) = np.nonzero(codes >= 0)
        for place in range(k):
            votes[known + place, codes[known] // 4 ** (k - 1 - place) % 4] += 1
        letters = np.where(
            votes.any(axis=1), np.frombuffer(BASES.encode(), np.uint8)[votes.argmax(axis=1)], ord("N")
        )
        return letters.astype(np.uint8).tobytes().decode("ascii")

    def symbols(self, text: str) -> int:
        """Bases; of an overlapping k-mer 1, for each begins one base further on and the rest are its neighbours'."""
        return 1 if self.options.tokens == "kmer" and len(text) == self.options.k else len(text)

    def augmentations(self) -> Mapping[str, Augmentation]:
        """``reverse_complement``: with even odds the other strand, read backwards; labels move with their tokens.

        A block that is not full stands then in front: the bases are those of the other strand, the blocks are those of
        this one.
        """
        vocabulary = self.vocabulary.get_vocab()
        complements = np.arange(max(vocabulary.values()) + 1, dtype=np.int32)
        for token, index in vocabulary.items():
            if token not in SPECIAL_TOKENS and not _NO_CODE.search(token):
                complements[index] = vocabulary.get(reverse_complement(token), index)

        def other_strand(
            ids: np.ndarray, units: np.ndarray | None, generator: np.random.Generator
        ) -> tuple[np.ndarray, np.ndarray]:
            source = np.arange(len(ids))
            if generator.random() < 0.5:
                return ids, source
            return complements[ids[::-1]].astype(ids.dtype), source[::-1].copy()

        return {"reverse_complement": other_strand}

    def write(self, text: str, path: Path) -> None:
        """Writes one FASTA record, 60 bases a line."""
        write_fasta(path, "dna", text)

    def sample(self) -> Sample:
        """Stretches of bacterial and phage genomes; see ``sample/SOURCE.md``."""
        return Sample(
            about="",
            files=sorted((Path(__file__).parent / "sample").glob("*.fasta.gz")),
        )

    # Letters

    def _tallied(self, cleaned: Cleaned, report: Report) -> str:
        """The canonical text, with what became of its letters told to the report."""
        text = cleaned.text.decode("ascii")
        report.tally("lower-case bases upper-cased", cleaned.lower)
        report.tally("U written as T", cleaned.aliased)
        report.tally("gaps removed", cleaned.removed)
        report.tally("characters that are no nucleotide written as N", cleaned.unknown)
        if cleaned.rare:
            unsure = text.count("N") - cleaned.unknown
            report.tally("N", unsure)
            if self.options.ambiguity == "n":
                report.tally("ambiguity codes written as N", cleaned.rare - unsure)
                text = text.translate(_TO_N)
            else:
                report.tally("ambiguity codes kept", cleaned.rare - unsure)
        return text

    def _segments(self, text: str, report: Report) -> list[str]:
        """The stretches of a contig that become tokens."""
        parts = [text]
        if self.options.n != "keep" and "N" in text:
            parts = self._gap.split(text)
            done = "split at" if self.options.n == "split" else "taken out"
            report.tally(f"runs of {self.options.n_run} N or more {done}", len(parts) - 1)
            if self.options.n == "drop":
                parts = ["".join(parts)]
        parts = [part for part in parts if part]
        long_enough = [part for part in parts if len(part) > self.overlap]
        report.tally("stretches shorter than a k-mer left out", len(parts) - len(long_enough))
        return long_enough

    # Tokens: each gives ids, starts and ends in the joined letters, and the number of tokens of each text

    def _bases(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        starts = np.arange(len(letters), dtype=_place_type(letters))
        return self._letter_ids[letters], starts, starts + 1, sizes

    def _kmers(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        k = self.options.k
        digits = np.concatenate([_DIGITS[letters], np.full(k - 1, _NO_DIGIT)])
        codes = np.zeros(len(letters), np.int32)
        unknown = np.zeros(len(letters), bool)
        for place in range(k):
            digit = digits[place : place + len(letters)]
            codes = codes * 4 + (digit & 3)
            unknown |= digit == _NO_DIGIT
        lengths = np.where(sizes > 0, np.maximum(sizes - k + 1, 1), 0)
        unknown[_starts(sizes)[(sizes > 0) & (sizes < k)]] = True
        (starts,) = np.nonzero(_places(sizes) < np.repeat(lengths, sizes))
        starts = starts.astype(_place_type(letters))
        ids = np.where(unknown, self._unknown_id, self._word_ids[k][codes])[starts]
        ends = np.minimum(starts + k, np.repeat(np.cumsum(sizes), lengths)).astype(starts.dtype)
        return ids, starts, ends, lengths

    def _blocks(self, letters: np.ndarray, sizes: np.ndarray) -> _Cut:
        begins = _places(sizes) % self.options.k == 0
        if not len(letters):
            return self._letter_ids[letters], np.zeros(0, np.int64), np.zeros(0, np.int64), sizes
        digits = _DIGITS[letters]
        (block_starts,) = np.nonzero(begins)
        block_sizes = np.diff(block_starts, append=len(letters))
        begins |= np.repeat(np.logical_or.reduceat(digits == _NO_DIGIT, block_starts), block_sizes)
        starts = np.nonzero(begins)[0].astype(_place_type(letters))
        ends = np.append(starts[1:], starts.dtype.type(len(letters)))
        ids = self._letter_ids[letters[starts]]
        for size in range(2, self.options.k + 1):
            (chosen,) = np.nonzero(ends - starts == size)
            codes = np.zeros(len(chosen), np.int32)
            for place in range(size):
                codes = codes * 4 + digits[starts[chosen] + place]
            ids[chosen] = self._word_ids[size][codes]
        lengths = np.diff(np.searchsorted(starts, np.append(0, np.cumsum(sizes))))
        return ids, starts, ends, lengths

    def _spellings(self) -> list[str]:
        """The tokens of the vocabulary behind the special ones."""
        if self.options.tokens == "kmer":
            return _words(self.options.k)
        longest = self.options.k if self.options.tokens == "block" else 1
        return [*(word for size in range(1, longest + 1) for word in _words(size)), *AMBIGUOUS]


def reverse_complement(sequence: str, alphabet: Literal["dna", "rna"] = "dna") -> str:
    """The other strand, read in its own direction. Case is kept; ambiguity codes have their complements (W, S, N themselves).

    Args:
        sequence: Nucleotides, IUPAC codes, and the gaps - and ., which stay as they are.
        alphabet: Whether A pairs with T or with U in what is returned.

    Raises:
        DataError: A character is no nucleotide.

    >>> reverse_complement("ACHVTWN")
    'NWABDGT'
    >>> reverse_complement("GGAU", "rna")
    'AUCC'
    """
    if wrong := _NO_CODE.search(sequence):
        raise DataError(
            f"No reverse complement: {_problem((wrong[0], wrong.start() + 1))}. Mend the sequence."
        )
    return sequence.translate(_COMPLEMENTS[alphabet])[::-1]


_Cut: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_NO_DIGIT = np.uint8(4)
_DIGITS = np.full(256, _NO_DIGIT)
for _digit, _base in enumerate(BASES):
    _DIGITS[[ord(_base), ord(_base.lower())]] = _digit
_DIGITS[[ord("U"), ord("u")]] = BASES.index("T")

_NO_PLACE = -2  # in the table of codes: a special token that stands for no base


def _words(size: int) -> list[str]:
    return ["".join(letters) for letters in product(BASES, repeat=size)]


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.cumsum(sizes) - sizes


def _places(sizes: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... anew in each of several groups of these sizes, end to end."""
    total = int(sizes.sum())
    dtype = np.int32 if total < 2**31 else np.int64
    return np.arange(total, dtype=dtype) - np.repeat(_starts(sizes).astype(dtype), sizes)


def _place_type(letters: np.ndarray) -> type[np.signedinteger]:
    """Half the memory for places, where a chromosome allows."""
    return np.int32 if len(letters) < 2**31 - _LONGEST_K else np.int64


def _is_protein(sequence: bytes) -> bool:
    return len(sequence) - len(sequence.translate(None, _PROTEIN_ONLY)) > _PROTEIN_SHARE * len(sequence)


def _problem(unknown_at: tuple[str, int]) -> str:
    character, position = unknown_at
    return f"{character!r} at position {position} of the sequence is no nucleotide"
