"""What can go wrong, said to the person who can mend it.

Every error that a user can mend is a :class:`SeqbertError`. The command line prints it as one plain paragraph
and exits with code 2; anything else is a fault of ours and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SeqbertError(Exception):
    """A mistake that the user can mend: the message says what is wrong, where, and what to do."""


class ConfigError(SeqbertError):
    """A key or a value in a config, or on the command line, that cannot be used."""


class DataError(SeqbertError):
    """A file or a record that cannot be read or used."""


class DomainError(SeqbertError):
    """A domain plugin that is unknown, broken, or claimed by two packages."""


class CheckpointError(SeqbertError):
    """Weights, a tokenizer or a run's folder that is missing, damaged or does not fit."""


class TrainingError(SeqbertError):
    """A run that cannot go on: a loss that is not finite, or an objective that the data cannot feed."""


class Stopped(KeyboardInterrupt):
    """The work was asked to end, by Ctrl-C or SIGTERM; no error, so that nothing but the command line catches it.

    Attributes:
        signal: Number of the signal that asked.
        at_once: Whether nothing more is to be saved.
    """

    def __init__(self, signal: int, message: str = "", at_once: bool = False) -> None:
        super().__init__(message)
        self.signal = signal
        self.at_once = at_once


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or nothing.

    >>> nearest("lerning_rate", ["learning_rate", "steps"])
    ' Did you mean "learning_rate"?'
    >>> nearest("zzz", ["learning_rate"])
    ''
    """
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{match[0]}"?' if match else ""
