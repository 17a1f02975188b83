"""Music in other keys: the change that keeps all intervals and rhythms."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from domains.music.alphabet import KEYS, PITCHES, transposed_key
from domains.music.merges import Spelling
from seqbert.domain import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VARIANTS = 12


def semitones_of(variant: int) -> int:
    """How far a variant shifts: up to a tritone up, up to a fourth down.

    >>> [semitones_of(variant) for variant in range(12)]
    [0, 1, 2, 3, 4, 5, 6, -5, -4, -3, -2, -1]
    """
    return variant if variant <= 6 else variant - VARIANTS


def within(semitones: int, lowest: int, highest: int) -> int:
    """The shift to the same key that keeps pitches in MIDI's range: the one asked for, else an octave the other way.

    Music that spans so much that neither stays in the range is not shifted.

    >>> within(6, 60, 72), within(6, 60, 124), within(-4, 2, 40), within(6, 0, 127)
    (6, -6, 8, 0)
    """
    for shift in (semitones, semitones - 12 if semitones > 0 else semitones + 12):
        if PITCHES[0] <= lowest + shift and highest + shift <= PITCHES[-1]:
            return shift
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """Shifts words of the alphabet: pitches by one number of semitones, and the key signatures with them.

    Drums, which are no pitches, stay.

    Attributes:
        pitches: Id of each pitch, ``[128]``.
        pitch_of: Pitch of each id, -1 where it is none, ``[vocabulary]``.
        keys: For each shift by 0 to 11 semitones what every id becomes, pitches aside, ``[12, vocabulary]``.
    """

    pitches: np.ndarray
    pitch_of: np.ndarray
    keys: np.ndarray

    @classmethod
    def of(cls, ids: dict[str, int]) -> Words:
        """The shifts for the words of a vocabulary."""
        pitches = np.array([ids[f"Pitch_{pitch}"] for pitch in PITCHES])
        pitch_of = np.full(len(ids), -1)
        pitch_of[pitches] = PITCHES
        keys = np.tile(np.arange(len(ids)), (VARIANTS, 1))
        for semitones in range(VARIANTS):
            for sharps in KEYS:
                key = f"KeySignature_{transposed_key(sharps, semitones)}"
                keys[semitones, ids[f"KeySignature_{sharps}"]] = ids[key]
        return cls(pitches, pitch_of, keys)

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids in a variant's key, word for word."""
        pitch = self.pitch_of[ids]
        noted = pitch >= 0
        lowest, highest = (int(pitch[noted].min()), int(pitch[noted].max())) if noted.any() else (60, 60)
        semitones = within(semitones_of(variant), lowest, highest)
        shifted = self.keys[semitones % VARIANTS][ids]
        shifted[noted] = self.pitches[pitch[noted] + semitones]
        return shifted.astype(ids.dtype), np.arange(len(ids))


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """Shifts tokens that are several words: they are taken apart, shifted, and merged anew.

    Attributes:
        tokenizer: Its vocabulary spells words as private-use characters.
        characters: What each id spells, "" where it is a special token.
        spelling: Of the alphabet.
        words: The shifts of the alphabet's words by their place in it.
    """

    tokenizer: Tokenizer
    characters: list[str]
    spelling: Spelling
    words: Words

    @classmethod
    def of(cls, tokenizer: Tokenizer, spelling: Spelling) -> Merged:
        """The shifts for the ids of a tokenizer."""
        spelled = [tokenizer.id_to_token(index) or "" for index in range(tokenizer.get_vocab_size())]
        characters = ["" if token in SPECIAL_TOKENS else token for token in spelled]
        return cls(tokenizer, characters, spelling, Words.of({word: i for i, word in enumerate(spelling.words)}))

    def __call__(self, ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids in a variant's key, each with the old token that holds its first word.

        Special tokens stay where they are. There can be more or fewer tokens than before.
        """
        if not variant:
            return ids.copy(), np.arange(len(ids))
        first = ord(self.spelling([self.spelling.words[0]]))
        spelled = [self.characters[index] for index in ids.tolist()]
        places = np.array([ord(c) - first for text in spelled for c in text], np.int64)
        moved = "".join([chr(first + place) for place in self.words(places, None, variant)[0].tolist()])
        changed: list[int] = []
        source: list[int] = []
        begin = done = 0
        for stop in [*(n for n, text in enumerate(spelled) if not text), len(spelled)]:
            owners = [n for n in range(begin, stop) for _ in spelled[n]]
            encoding = self.tokenizer.encode(moved[done : done + len(owners)], add_special_tokens=False)
            changed += encoding.ids
            source += [owners[place] for place, _ in encoding.offsets]
            if stop < len(spelled):
                changed.append(int(ids[stop]))
                source.append(stop)
            begin, done = stop + 1, done + len(owners)
        return np.array(changed, ids.dtype), np.array(source, np.int64)
