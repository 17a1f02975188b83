"""The options of the protein domain."""

from __future__ import annotations

import dataclasses
from typing import Literal

from seqbert.errors import ConfigError, nearest

_CHOICES = {
    "tokens": ("residue", "bpe"),
    "gaps": ("remove", "keep"),
    "insertions": ("keep", "drop"),
    "terminal_stop": ("strip", "keep"),
    "unknown": ("replace", "skip", "error"),
}
_SHORTEST, _LONGEST = 2, 64


@dataclasses.dataclass
class ProteinOptions:
    """What a token is, and what is done to characters that are no plain residue. Lower case is upper-cased."""

    tokens: Literal["residue", "bpe"] = "residue"
    """residue: a token a residue, as in ESM (Rives et al. 2021) and ProtTrans (Elnaggar et al. 2021), from a fixed
    alphabet. bpe: stretches of residues learned from the data by byte-pair encoding, as in ProtGPT2 (Ferruz et al.
    2022); sequences are then about half as long or less, and vocab_size says how many tokens there are."""

    longest_token: int = 8
    """Most residues of a token by bpe, from 2 to 64. Without a bound, families that stand many times in the data get
    tokens for whole domains."""

    gaps: Literal["remove", "keep"] = "remove"
    """Alignment gaps, - and . alike. remove: they are taken out. keep: each is the token "-"; a model that has never
    seen one cannot use it, so they are for training on aligned data."""

    insertions: Literal["keep", "drop"] = "keep"
    """Lower-case residues in A2M, A3M and Stockholm files, which stand between the columns of the alignment. keep: they
    are residues like others, so that the protein is whole. drop: they are taken out, which leaves the columns."""

    terminal_stop: Literal["strip", "keep"] = "strip"
    """A * that ends a translated protein, or several: taken off, or kept as tokens. A * inside is always kept."""

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
        if not _SHORTEST <= self.longest_token <= _LONGEST:
            raise ConfigError(
                f"The protein option longest_token is {self.longest_token}; it is from {_SHORTEST} to {_LONGEST}, "
                "for a token by bpe has two residues or more."
            )
