"""The options of the plugin for DNA and RNA."""

from __future__ import annotations

import dataclasses
from typing import Literal

from seqbert.errors import ConfigError, nearest

_LONGEST_K = 8
_CODON = 3
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "tokens": ("base", "kmer", "block", "bpe"),
    "tail": ("keep", "spell", "drop"),
    "unit": (None, "token", "span", "codon"),
    "alphabet": ("dna", "rna"),
    "soft_masked": ("upper", "n"),
    "ambiguity": ("keep", "n", "split"),
    "n": ("split", "keep", "shorten", "drop"),
    "unknown": ("replace", "skip", "error"),
}


@dataclasses.dataclass
class DNAOptions:
    """How bases become tokens, and what is done to letters that are no plain base.

    Canonical text is upper case, in the letters of the alphabet, without the gaps - and . of alignments.
    """

    tokens: Literal["base", "kmer", "block", "bpe"] = "base"
    """base: a token a base. kmer: overlapping k-mers, one begun at each base, as in DNABERT (Ji et al. 2021).
    block: k bases a token, side by side from the segment's start; one with an ambiguous base is spelled by bases.
    bpe: words learned from the data by byte-pair encoding, as in DNABERT-2 (Zhou et al. 2024)."""

    k: int = 6
    """Bases in a k-mer or block, and tokens in the masking unit "span"; from 1 to 8."""

    tail: Literal["keep", "spell", "drop"] = "keep"
    """The bases behind the last whole block. keep: they are one shorter word. spell: they are spelled by bases.
    drop: they are left off, and counted."""

    unit: Literal["token", "span", "codon"] | None = None
    """What is masked as one where the objective masks by unit. token: a token. span: k consecutive tokens. codon:
    three bases; needs tokens by base, or blocks of 3. null: span for k-mers, which give their neighbours away, else
    token."""

    frame: int = 0
    """For codons: how many bases stand before the first one, 0 to 2, as the phase in GFF. Blocks of 3 follow it."""

    alphabet: Literal["dna", "rna"] = "dna"
    """Whether tokens and text are spelled with T or with U. The other of the two is written as this one."""

    soft_masked: Literal["upper", "n"] = "upper"
    """Lower-case bases, which genomes have where repeats are. upper: they are bases like any other. n: they are
    masked out, written as N, so that runs of them are treated as the option n says."""

    ambiguity: Literal["keep", "n", "split"] = "keep"
    """IUPAC codes such as R, and N in runs shorter than n_run. keep: they have tokens of their own. n: they are
    written as N. split: the contig is cut there, without them."""

    n: Literal["split", "keep", "shorten", "drop"] = "split"
    """Runs of n_run or more N. split: the contig is cut there into segments, without the run. keep: they
    stay. shorten: n_run of them stay. drop: they are taken out and what they parted is joined."""

    n_run: int = 4
    """Fewer N than this in a row are uncertain bases; this many are a gap in the assembly."""

    unknown: Literal["replace", "skip", "error"] = "replace"
    """A record with any other character, such as a digit: the character becomes N, the record is left out, or
    the run stops."""

    regions: str = ""
    """A BED file: of each FASTA file these regions are read, a document each, and nothing else. Each contig is
    reached by its place in the file, through FILE.fai if that is there."""

    genome: str = ""
    """A FASTA file from which cells of tables such as chr1:1,000-2,000(-) are taken; both places count from 1."""

    window: int = 0
    """Cut records into documents of so many bases, one each stride; 0: a record is a document, and windows of the
    model's length are drawn from it anew in each epoch."""

    stride: int = 0
    """Bases from the start of a window to the start of the next, at most window; 0: as window, without overlap."""

    def __post_init__(self) -> None:
        for key, values in _CHOICES.items():
            if (value := getattr(self, key)) not in values:
                named = [text for text in values if text is not None]
                raise ConfigError(
                    f'The dna option {key} is "{value}"; it is one of {", ".join(named)}.' + nearest(str(value), named)
                )
        if not 1 <= self.k <= _LONGEST_K:
            raise ConfigError(
                f"The dna option k is {self.k}; it is from 1 to {_LONGEST_K}, for a vocabulary has 4^k words."
            )
        if self.n_run < 1:
            raise ConfigError(f"The dna option n_run is {self.n_run}; a run of N has at least 1.")
        self._check_codons()
        self._check_windows()

    @property
    def masking_unit(self) -> Literal["token", "span", "codon"]:
        """The option ``unit``, or what null stands for."""
        return self.unit or ("span" if self.tokens == "kmer" else "token")

    def _check_codons(self) -> None:
        fits = self.tokens == "base" or (self.tokens == "block" and self.k == _CODON)
        if self.unit == "codon" and not fits:
            raise ConfigError(
                f'The dna option unit is "codon", which is three bases, but tokens is "{self.tokens}" with k '
                f"{self.k}: set tokens to base, or to block with k 3, or unit to span."
            )
        if not 0 <= self.frame < _CODON:
            raise ConfigError(f"The dna option frame is {self.frame}; it is 0, 1 or 2.")
        if self.frame and self.unit != "codon":
            raise ConfigError(
                f"The dna option frame is {self.frame}, which says where codons begin: set unit to codon, or leave "
                "frame out."
            )
        if self.unit == "codon" and self.n in ("drop", "shorten"):
            raise ConfigError(
                f'The dna option n is "{self.n}", which would move the codons behind a run of N out of their frame: '
                "set n to split or keep."
            )

    def _check_windows(self) -> None:
        if self.window < 0 or not 0 <= self.stride <= self.window:
            raise ConfigError(
                f"The dna options window and stride are {self.window} and {self.stride}; a window has at least 1 "
                "base (0: no windows), and a stride at most as many (0: as many as the window)."
            )
        if self.window and self.n in ("drop", "shorten"):
            raise ConfigError(
                f'The dna option n is "{self.n}", and the places of windows would not be those of the record: set n '
                "to split or keep, or window to 0."
            )
        if self.unit == "codon" and (self.stride or self.window) % _CODON:
            raise ConfigError(
                f"The dna option stride is {self.stride or self.window}, so that windows begin within codons: make it "
                "a multiple of 3."
            )
        if self.window and self.window < (self.k if self.tokens in ("kmer", "block") else 1):
            raise ConfigError(f"The dna option window is {self.window}, and a token has {self.k} bases.")
