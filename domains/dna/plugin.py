"""The plugin: files of nucleotides to documents, and documents to tokens of either strand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from domains.dna.options import DNAOptions
from domains.dna.regions import Genome, Region, parse_locus, read_bed
from domains.dna.strands import AMBIGUOUS, BASES_OF, OtherStrand, problem, reverse_complement
from domains.dna.tables import sample_tables
from domains.dna.tokens import TOKENS
from domains.dna.uci import uci_examples
from domains.sequences.alphabet import Alphabet, Cleaned, each_character, places
from domains.sequences.fasta import write_fasta
from domains.sequences.reading import endings, holds_sequences, read_sequences
from domains.sequences.records import OTHER_KIND, Names
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Document, Domain, Encoded, Example, Report, Sample
from seqbert.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_AMBIGUOUS_TO_N = str.maketrans(AMBIGUOUS, "N" * len(AMBIGUOUS))
_NOT_NUCLEOTIDE = "characters that are no nucleotide written as N"
_TOO_SHORT = "no stretch of bases that is long enough for a token"

# A third of a usual protein is E, F, I, L, P and Q, which stand for no nucleotide.
_PROTEIN_ONLY = b"EFILPQefilpq"
_PROTEIN_SHARE = 0.2

_LETTERS = (BASES_OF["dna"] + AMBIGUOUS + "U").encode()
_SOFT_MASKED = bytes.maketrans(_LETTERS.lower(), b"n" * len(_LETTERS))

_CLEANED_AT_ONCE = 1 << 22
_PART = 1 << 20
_NAMED_PROBLEMS = 5
_CODON = 3


class DNA(Domain):
    """DNA, and RNA.

    Vocabularies, behind the special tokens: by base, the four bases and the IUPAC codes; by k-mer, all 4^k k-mers in
    the order of DNABERT's, then the bases and the codes; by block, all words of 1 to k bases and the codes; by
    byte-pair encoding the bases, the codes and learned words.

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
    formats: ClassVar[dict[str, str]] = endings("nucleotide")
    symbol = "base"
    pairs = False  # a contig is one segment, but where runs of N split it
    version = "2"

    options: DNAOptions

    def __init__(self, options: DNAOptions | None = None) -> None:
        super().__init__(options)
        bases = BASES_OF[self.options.alphabet]
        other = {"U": "T"} if self.options.alphabet == "dna" else {"T": "U"}
        self._alphabet = Alphabet(plain=bases, rare=AMBIGUOUS, replacement="N", aliases=other, removed="-.")
        self._respelled = "{} written as {}".format(*next(iter(other.items())))
        self._tokens = TOKENS[self.options.tokens](self.options, self._alphabet)
        self._gap = re.compile(f"N{{{self.options.n_run},}}")
        self._cut = re.compile(f"N{{{self.options.n_run},}}|[{AMBIGUOUS}]")

    @property
    def unit(self) -> str:
        """The option ``unit``: "token"; "span", k consecutive tokens; or "codon", three bases."""
        return self.options.masking_unit

    @property
    def overlap(self) -> int:
        """K - 1 for overlapping k-mers, else 0."""
        return self._tokens.overlap

    # Files

    def reads(self, path: Path) -> bool:
        """By what the file holds; FASTA by its ending or a first record in nucleotides."""
        return holds_sequences(path, "nucleotide", _LETTERS)

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields one document a record, or a region, or a window; its segments are what stands between gaps.

        Raises:
            DataError: As :func:`domains.sequences.reading.read_sequences` does; for an unknown character where the
                option ``unknown`` is "error"; and for ``regions`` that cannot be read or are of no FASTA file.
        """
        names = Names(report)
        if self.options.regions:
            yield from self._read_regions(path, names, report)
            return
        for number, name, description, sequence, metadata in read_sequences(path, "nucleotide", report):
            source = f"{path}:{number}"
            text = self._cleaned(sequence, source, f"record {number} ({name})", report)
            del sequence  # of a chromosome, no more is held than is needed
            if text is not None:
                known = ({"description": description} if description else {}) | metadata
                documents = self._documents(names.unique(name, number), [text], source, known, report)
                del text
                yield from documents

    def _read_regions(self, path: Path, names: Names, report: Report) -> Iterator[Document]:
        genome = Genome(path)
        for number, region in enumerate(read_bed(Path(self.options.regions), report), 1):
            if genome.length(region.contig) is None:  # of several files another may have it
                report.note("regions on contigs that a file does not have")
                continue
            if fault := genome.fault(region):
                report.skipped(region.source, fault, region.place)
                continue
            text = self._cleaned(genome.fetch(region), region.source, region.place, report)
            if text is None:
                continue
            if region.strand == "-":
                text = reverse_complement(text, self.options.alphabet)
            metadata = {
                "contig": region.contig,
                "start": str(region.start),
                "end": str(region.end),
                "strand": region.strand,
            }
            name = names.unique(region.name or region.place, number)
            yield from self._documents(name, [text], region.source, metadata, report)

    def _documents(
        self, name: str, texts: list[str], source: str, metadata: dict[str, str], report: Report
    ) -> Iterator[Document]:
        """The document of a record, or those of its windows; ``texts`` is its text, which is taken out."""
        text = texts.pop()
        if not self.options.window:
            segments = self._segments(text, source, report)
            del text
            if segments:
                yield Document(name, segments, source, metadata)
            else:
                report.skipped(source, _TOO_SHORT)
            return
        stride = self.options.stride or self.options.window
        if stride < self.options.window:
            report.note(
                "records in windows that overlap: set split.by to contig, or a held-out share is seen in training"
            )
        for start in range(0, max(len(text) - self.options.window + stride, 1), stride):
            end = min(start + self.options.window, len(text))
            segments = self._segments(text[start:end], source, report)
            if segments:
                place = {"contig": name, "window_start": str(start), "window_end": str(end)}
                yield Document(f"{name}:{start + 1}-{end}", segments, source, metadata | place)
            else:
                report.skipped(f"{source}:{start + 1}-{end}", _TOO_SHORT)

    def examples(self, path: Path, report: Report) -> Iterator[Example] | None:
        """Yields the rows of UCI's splice junctions or promoters; see :func:`domains.dna.uci.uci_examples`."""
        return uci_examples(path, self.cell, report)

    def canonical(self, raw: str) -> str:
        """Nucleotides in the letters of the alphabet, without blanks and gaps, or those of a place in ``genome``.

        As :meth:`read` does it to a record; but nothing is split.

        Raises:
            DataError: A character is no nucleotide, and the option ``unknown`` is not "replace"; or there is no such
                place.
        """
        return self.cell(raw, Report(), "")

    def cell(self, raw: str, report: Report, source: str) -> str:
        """See :meth:`canonical`; what it changes is told to ``report``."""
        region = parse_locus(raw)
        if region is None:
            letters = "".join(raw.split()).encode("latin-1", "replace")
        else:
            letters = self._genome(region).fetch(region)
        cleaned = self._alphabet.clean(self._masked(letters))
        if cleaned.unknown_at and self.options.unknown != "replace":
            what = (
                "".join(raw.split())[cleaned.unknown_at - 1] if region is None else chr(letters[cleaned.unknown_at - 1])
            )
            raise DataError(
                f"{raw[:40]!r} is no DNA: {problem(what, cleaned.unknown_at)}. Mend it, or set the option unknown to "
                "replace."
            )
        text = self._tallied(cleaned, letters, report, source)
        if region is not None and region.strand == "-":
            text = reverse_complement(text, self.options.alphabet)
        (text,) = self._joined(text, source, report)
        return self._without_tail(text, source, report)

    def _genome(self, region: Region) -> Genome:
        if not self.options.genome:
            raise DataError(
                f"{region.place} is a place in a genome: name the genome's FASTA file in the dna option genome."
            )
        return self._opened_genome

    @cached_property
    def _opened_genome(self) -> Genome:
        return Genome(Path(self.options.genome))

    # Letters

    def _cleaned(self, sequence: bytes, source: str, what: str, report: Report) -> str | None:
        """A record in canonical letters, with all that changed told to the report; None where it is skipped."""
        cleaned = self._clean(sequence)
        if cleaned.unknown_at:
            if _is_protein(sequence):
                report.skipped(source, OTHER_KIND["nucleotide"])
                return None
            problems = _problems(sequence)
            if self.options.unknown == "error":
                raise DataError(
                    f"{source.rpartition(':')[0]}, {what}: {problems}. Mend the record, or set the option unknown to "
                    "replace or skip."
                )
            if self.options.unknown == "skip":
                report.skipped(source, "a character that is no nucleotide", problems)
                return None
            report.repaired(source, _NOT_NUCLEOTIDE, problems)
        return self._tallied(cleaned, sequence, report, source)

    def _clean(self, sequence: bytes) -> Cleaned:
        """As the alphabet does, by parts that are short beside a chromosome."""
        if len(sequence) <= _CLEANED_AT_ONCE:
            return self._alphabet.clean(self._masked(sequence))
        text, counts, unknown_at = "", np.zeros(5, np.int64), None
        for start in range(0, len(sequence), _CLEANED_AT_ONCE):
            part = self._alphabet.clean(self._masked(sequence[start : start + _CLEANED_AT_ONCE]))
            text += part.text  # grows in place, for nothing else refers to it
            counts += (part.lower, part.aliased, part.removed, part.rare, part.unknown)
            if part.unknown_at and unknown_at is None:
                unknown_at = start + part.unknown_at
        lower, aliased, removed, rare, unknown = counts.tolist()
        return Cleaned(text, lower, aliased, removed, rare, unknown, unknown_at)

    def _masked(self, sequence: bytes) -> bytes:
        return sequence.translate(_SOFT_MASKED) if self.options.soft_masked == "n" else sequence

    def _tallied(self, cleaned: Cleaned, sequence: bytes, report: Report, source: str) -> str:
        """The canonical text, with what became of its letters told to the report."""
        text = cleaned.text
        masked = 0
        if self.options.soft_masked == "n":
            masked = len(sequence) - len(sequence.translate(None, _LETTERS.lower()))
            report.tally("soft-masked bases written as N", masked, source)
        else:
            report.tally("lower-case bases upper-cased", cleaned.lower, source)
        report.tally(self._respelled, cleaned.aliased, source)
        report.tally("gaps removed", cleaned.removed, source)
        report.tally(_NOT_NUCLEOTIDE, cleaned.unknown, source)
        if cleaned.rare:
            n = text.count("N") - cleaned.unknown
            report.note("N", n - masked)
            codes = cleaned.rare - n
            if self.options.ambiguity == "n":
                report.tally("ambiguity codes written as N", codes, source)
                text = text.translate(_AMBIGUOUS_TO_N)
            elif self.options.ambiguity == "keep":
                report.note("ambiguity codes kept", codes)
        return text

    def _joined(self, text: str, source: str, report: Report) -> list[str]:
        """The text with its runs of N as the options say, where that leaves it in one piece."""
        run = f"runs of {self.options.n_run} or more N"
        if self.options.n in ("drop", "shorten") and "N" * self.options.n_run in text:
            left = "" if self.options.n == "drop" else "N" * self.options.n_run
            text, count = self._gap.subn(left, text)
            report.tally(f"{run} {'taken out' if self.options.n == 'drop' else 'shortened'}", count, source)
        elif self.options.n == "keep" and "N" * self.options.n_run in text:
            report.note(f"{run} kept", sum(1 for _ in self._gap.finditer(text)))
        return [text]

    def _segments(self, text: str, source: str, report: Report) -> list[str]:
        """The stretches of a record that become tokens."""
        (text,) = self._joined(text, source, report)
        by_n, by_code = self.options.n == "split", self.options.ambiguity == "split"
        parts: list[str] = []
        begun = runs = codes = broken = 0
        if by_code or (by_n and "N" * self.options.n_run in text):
            for match in (self._cut if by_code else self._gap).finditer(text):
                is_run = len(match[0]) >= self.options.n_run and match[0][0] == "N"
                if is_run and not by_n:
                    continue
                runs, codes = runs + is_run, codes + (not is_run)
                parts.append(text[begun : match.start()])
                begun = min(self._next_codon(match.end()), len(text))
                broken += begun - match.end()
        report.tally(f"runs of {self.options.n_run} or more N split at", runs, source)
        report.tally("ambiguity codes split at", codes, source)
        report.tally("bases of a codon that a gap breaks left off", broken, source)
        parts.append(text[begun:] if begun else text)
        del text
        parts = [part for part in parts if part]
        segments = [whole for part in parts if (whole := self._without_tail(part, source, report))]
        return segments

    def _next_codon(self, place: int) -> int:
        """Where a stretch behind a gap begins, so that its codons are in the frame of the record."""
        return place + -place % _CODON if self.options.unit == "codon" else place

    def _without_tail(self, text: str, source: str, report: Report) -> str:
        if self.options.tokens != "block" or self.options.tail != "drop":
            return text
        left_over = (len(text) - self.options.frame) % self.options.k
        if len(text) < self.options.k + self.options.frame:
            left_over = len(text)
        report.tally("bases behind the last whole block left off", left_over, source)
        return text[: len(text) - left_over]

    # Tokens

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """The tokenizer of the chosen tokens; ``segments`` are looked at for byte-pair encoding only.

        The one for k-mers takes them with blanks between, as DNABERT's own does; :meth:`encode` cuts them.

        Raises:
            ConfigError: ``vocab_size`` is below what the tokens need.
        """
        return self._tokens.make(segments, vocab_size)

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer of the chosen tokens: one that this domain made, or DNABERT's for k-mers.

        Raises:
            ConfigError: The tokenizer lacks one of the tokens that the options ask for.
        """
        self._tokens.take(tokenizer)
        super().use(tokenizer)

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """Tokens of canonical texts, all at once.

        Units are numbered from 0 in each text: the token's number // k for "span"; for "codon" the triplet that the
        token's first base is of, with the bases before the first codon as one of their own.

        Raises:
            DomainError: No tokenizer is in use yet.
        """
        _ = self.vocabulary  # raises where none is in use
        frame = self.options.frame
        cut = self._tokens.cut(texts, frame)
        units = None
        if self.unit == "codon":
            units = (cut.starts + -frame % _CODON) // _CODON
        elif self.unit == "span":
            units = places(cut.lengths) // self.options.k
        return Encoded(
            cut.ids,
            cut.lengths,
            None if units is None else units.astype(np.int32, copy=False),
            np.stack([cut.starts, cut.ends], axis=1).astype(np.int64, copy=False) if offsets else None,
        )

    def encode_long(self, text: str) -> Iterator[Encoded]:
        """The tokens of :meth:`encode` by parts of a million bases."""
        _ = self.vocabulary  # raises where none is in use
        k, overlap, codons = self.options.k, self.overlap, self.unit == "codon"
        step = _PART - _PART % (self._tokens.step * _CODON)
        edges = [0, *range(self.options.frame + step, len(text) - overlap, step)]
        held = np.zeros(0, np.int32)
        for begin, end in zip(edges, [*edges[1:], len(text)], strict=True):
            last = end == len(text)
            cut = self._tokens.cut(
                [text[begin : len(text) if last else end + overlap]], 0 if begin else self.options.frame
            )
            ids = cut.ids if last or not overlap else cut.ids[: end - begin]
            units: np.ndarray | None
            if codons:
                units = (cut.starts + (0 if begin else -self.options.frame % _CODON)) // _CODON
                yield Encoded(ids, np.array([len(ids)]), units.astype(np.int32))
                continue
            ids = np.concatenate([held, ids])
            whole = len(ids) if last else len(ids) - len(ids) % k  # a part ends where a span does
            ids, held = ids[:whole], ids[whole:]
            units = np.arange(whole, dtype=np.int32) // k if self.unit == "span" else None
            yield Encoded(ids, np.array([whole]), units)

    def decode(self, ids: Sequence[int]) -> str:
        """The bases of token ids; special tokens are left out, but [UNK] and [MASK] among k-mers are N."""
        _ = self.vocabulary  # raises where none is in use
        return self._tokens.decode(np.asarray(ids, np.int64))

    def words(self, text: str) -> np.ndarray:
        """Every base, ``[bases, 2]``."""
        return each_character(text)

    def symbols(self, text: str) -> int:
        """Bases. Of an overlapping k-mer 1: it begins one base further on, and shares the rest."""
        return 1 if self.options.tokens == "kmer" and len(text) == self.options.k else len(text)

    def augmentations(self) -> Mapping[str, Augmentation]:
        """``reverse_complement``: the other strand, read in its own direction.

        Labels move with their bases. There is none of codons: what is coding on one strand is not on the other.
        """
        if self.unit == "codon":
            return {}
        vocabulary = self.vocabulary.get_vocab()
        special = np.zeros(max(vocabulary.values()) + 1, bool)
        special[[vocabulary[token] for token in SPECIAL_TOKENS if token in vocabulary]] = True
        return {"reverse_complement": Augmentation(2, OtherStrand(special, self._tokens.turn))}

    def write(self, text: str, path: Path) -> None:
        """Writes one FASTA record, 60 bases a line."""
        write_fasta(path, self.options.alphabet, text)

    def sample(self) -> Sample:
        """Stretches of a bacterial genome; ``sample/SOURCE.md`` says which and how chosen."""
        return Sample(
            about="300 stretches of 3 kb of Escherichia coli 536 (NC_008253.1, INSDC: free and unrestricted)",
            files=[Path(__file__).parent / "sample" / "escherichia_coli_536.fasta.gz"],
            tables=sample_tables(self),
        )


def _is_protein(sequence: bytes) -> bool:
    return len(sequence) - len(sequence.translate(None, _PROTEIN_ONLY)) > _PROTEIN_SHARE * len(sequence)


def _problems(sequence: bytes) -> str:
    """The first characters of a record that are no nucleotides, with their places."""
    wrong = re.compile(rb"[^%b%b.\-]" % (_LETTERS, _LETTERS.lower()))
    found = [match for match, _ in zip(wrong.finditer(sequence), range(_NAMED_PROBLEMS + 1), strict=False)]
    told = [f"{match[0].decode('latin-1')!r} at position {match.start() + 1}" for match in found]
    if len(told) == 1:
        return f"{told[0]} of the sequence is no nucleotide"
    more = ["..."] if len(told) > _NAMED_PROBLEMS else []
    return f"{', '.join(told[:_NAMED_PROBLEMS] + more)} of the sequence are no nucleotides"
