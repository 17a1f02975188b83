"""Fills hidden tokens one after another, each in view of those that were filled before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from seqbert.data.packing import pack
from seqbert.domain import SPECIAL_TOKENS, Domain
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.inference.grammar import Grammar
from seqbert.inference.trained import Trained


@dataclasses.dataclass(frozen=True, slots=True)
class Filler:
    """A token for a masked place, and the probability that the model gives it."""

    token: str
    probability: float


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What was put in one hidden place.

    Attributes:
        place: Its number among the tokens, or the symbols where tokens overlap, from 0.
        token: The token or symbol.
        probability: What the model gave it when it was chosen.
        fillers: The most probable ones at that moment, the best first.
    """

    place: int
    token: str
    probability: float
    fillers: list[Filler]


class Infiller:
    """A masked language model that fills in.

    All hidden tokens are masked at first. In each pass the model looks once and the token that it is surest of is put
    in; then it looks again with that token in view. So mask-predict keeps the surest ones (Ghazvininejad et al. 2019,
    section 3), but here there is a pass for each token and none is taken back, so that no two are chosen blind to each
    other.

    Args:
        trained: The model.
        max_length: Most tokens that the model is shown, special tokens included. Of a longer document it is shown what
            lies around a hidden stretch, as much on either side; a stretch that takes more than half of that is filled
            part by part, from the left.
        temperature: 0: the most probable token; above: one drawn from the probabilities, raised to 1 / temperature.
        seed: Of these draws.
        top: How many fillers to tell of each place.

    Raises:
        CheckpointError: The model is no masked language model.
        ConfigError: A number cannot be used.
    """

    def __init__(
        self,
        trained: Trained,
        max_length: int,
        temperature: float = 0.0,
        seed: int = 0,
        top: int = 5,
    ) -> None:
        check_masked_lm(trained)
        if not 0 <= temperature < float("inf"):
            raise ConfigError(f"temperature is {temperature}, and it must be 0 or above.")
        self.trained, self.temperature, self.top = trained, temperature, top
        self._room = max_length - 2
        self._generator = np.random.default_rng(seed)
        self._begin, self._end, self._mask = trained.token_ids(*SPECIAL_TOKENS[2:])
        vocabulary = trained.domain.vocabulary
        special = {i for i, token in vocabulary.get_added_tokens_decoder().items() if token.special}
        self._special = sorted(special | set(trained.token_ids(*SPECIAL_TOKENS)))
        self._spell = vocabulary.id_to_token

    def fill(
        self,
        ids: np.ndarray,
        hidden: np.ndarray,
        allowed: Callable[[int], np.ndarray | None] = lambda place: None,
        grammar: Grammar | None = None,
    ) -> tuple[np.ndarray, list[Choice]]:
        """Fills tokens.

        Args:
            ids: The document's tokens, without special tokens around them, ``[tokens]``.
            hidden: Places of the hidden ones, rising, ``[hidden]``.
            allowed: Says of a place which tokens may stand there, ``[vocabulary]`` bool; None: all but special ones.
            grammar: What is filled in keeps to it.

        Returns:
            The tokens, filled, and what was put in, in order of place.
        """
        ids, found = ids.copy(), []
        ids[hidden] = self._mask
        is_open = np.zeros(len(ids), bool)
        is_open[hidden] = True
        for part in self._parts(hidden, len(ids)):
            start, open_places = self._start(part, len(ids)), part.tolist()
            while open_places:
                rows = self._probabilities(ids, start, np.array(open_places))
                still_open = np.flatnonzero(is_open)
                fitting = None if grammar is None else grammar.fitting(ids, still_open)
                for row, place in zip(rows, open_places, strict=True):
                    _keep(row, allowed(place))
                    if fitting is not None:
                        _keep(row, fitting[np.searchsorted(still_open, place)])
                number, drawn = self._next(rows)
                place = open_places.pop(number)
                ids[place], is_open[place] = drawn, False
                found.append(self._choice(place, self._spell(drawn) or "", rows[number], drawn, self._spell))
        return ids, sorted(found, key=lambda choice: choice.place)

    def fill_symbols(self, text: str, hidden: Sequence[int]) -> tuple[str, list[Choice]]:
        """Fills symbols of a text whose tokens overlap: every token that reaches an open symbol is hidden.

        What a symbol can be is told by each token over it, of which only those count that agree with the symbols that
        are known; the probability of a letter is the geometric mean of what the tokens give it.

        Args:
            text: A text, of a character a symbol; what stands at hidden places is not looked at.
            hidden: The hidden places, rising.

        Raises:
            DataError: The text is shorter than a token.
        """
        domain = self.trained.domain
        spelling = _Spelling.of(domain, self._special)
        if len(text) < spelling.size:
            raise DataError(
                f"The model's tokens are {spelling.size} symbols long: a text of {len(text)} has none to be filled."
            )
        letters: list[str | None] = [None if place in set(hidden) else letter for place, letter in enumerate(text)]
        tokens = len(text) - spelling.size + 1
        over = {place: range(max(0, place - spelling.size + 1), min(place, tokens - 1) + 1) for place in hidden}
        found: list[Choice] = []
        for part in self._parts(np.array(sorted({token for reach in over.values() for token in reach})), tokens):
            start = self._start(part, tokens)
            mine = [place for place in hidden if letters[place] is None and set(over[place]) & set(part.tolist())]
            while mine:
                view = letters[start : start + self._room + spelling.size - 1]
                shown = "".join(letter or spelling.alphabet[0] for letter in view)
                ids = domain.encode([shown], offsets=False).ids.astype(np.int64)
                for place in hidden:
                    if letters[place] is None:
                        ids[[token - start for token in over[place] if 0 <= token - start < len(ids)]] = self._mask
                asked = np.flatnonzero(ids == self._mask)
                rows = dict(zip((start + asked).tolist(), self._probabilities(ids, 0, asked), strict=True))
                chances = np.stack([spelling.chances(place, over[place], rows, letters) for place in mine])
                number, drawn = self._next(chances)
                place, letter = mine.pop(number), spelling.alphabet[drawn]
                letters[place] = letter
                found.append(self._choice(place, letter, chances[number], drawn, spelling.alphabet.__getitem__))
        return "".join(letter or "" for letter in letters), sorted(found, key=lambda choice: choice.place)

    def _parts(self, hidden: np.ndarray, length: int) -> Iterator[np.ndarray]:
        """Hidden places that are filled in one view: all, where the whole document is seen."""
        if length <= self._room:
            if len(hidden):
                yield hidden
            return
        low = 0
        while low < len(hidden):
            high = int(np.searchsorted(hidden, hidden[low] + max(1, self._room // 2)))
            yield hidden[low:high]
            low = high

    def _start(self, part: np.ndarray, length: int) -> int:
        """Where the view begins that has a part in its middle."""
        middle = (int(part[0]) + int(part[-1]) + 1) // 2
        return min(max(0, middle - self._room // 2), max(0, length - self._room))

    @torch.inference_mode()
    def _probabilities(self, ids: np.ndarray, start: int, places: np.ndarray) -> np.ndarray:
        """Probabilities of all tokens at the places, special ones having none, ``[places, vocabulary]`` float64."""
        trained = self.trained
        shown = np.concatenate([[self._begin], ids[start : start + self._room], [self._end]])
        hidden = trained.hidden(pack(trained.domain.name, [shown]), torch.from_numpy(places - start + 1))
        with trained.device.autocast():
            logits = trained.heads["masked_lm"](hidden)
        scores = logits.double().cpu().numpy()
        scores[:, trained.domain.vocabulary.get_vocab_size() :] = -np.inf  # rows that no token has
        scores[:, self._special] = -np.inf
        return _softmax(scores)

    def _next(self, rows: np.ndarray) -> tuple[int, int]:
        """Which of the open places is filled now, and with what."""
        number = int(rows.max(axis=1).argmax())
        if not self.temperature:
            return number, int(rows[number].argmax())
        with np.errstate(divide="ignore"):
            heated = _softmax(np.log(rows[number]) / self.temperature)
        return number, int(self._generator.choice(len(heated), p=heated))

    def _choice(
        self, place: int, token: str, row: np.ndarray, drawn: int, spell: Callable[[int], str | None]
    ) -> Choice:
        best = [number for number in np.argsort(-row, kind="stable")[: self.top].tolist() if row[number] > 0]
        fillers = [Filler(spell(number) or "", float(row[number])) for number in best]
        return Choice(place, token, float(row[drawn]), fillers)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spelling:
    """The letters of tokens that overlap.

    Attributes:
        alphabet: All letters.
        table: Numbers of the letters of each token, ``[vocabulary, size]``; -1 where it is not of full size.
    """

    alphabet: list[str]
    table: np.ndarray

    @classmethod
    def of(cls, domain: Domain, special: Sequence[int]) -> _Spelling:
        """Reads them off the vocabulary."""
        words, size = domain.vocabulary.get_vocab(), domain.overlap + 1
        full = {word: number for word, number in words.items() if len(word) == size and number not in special}
        alphabet = sorted({letter for word in full for letter in word})
        table = np.full((max(words.values()) + 1, size), -1)
        for word, number in full.items():
            table[number] = [alphabet.index(letter) for letter in word]
        return cls(alphabet, table)

    @property
    def size(self) -> int:
        """Letters of a token."""
        return int(self.table.shape[1])

    def chances(
        self, place: int, over: Iterable[int], rows: Mapping[int, np.ndarray], letters: Sequence[str | None]
    ) -> np.ndarray:
        """Probabilities of letters at an open place, ``[alphabet]``.

        Args:
            place: The place.
            over: Tokens over it.
            rows: Probabilities of all tokens at those that the model was asked for.
            letters: All letters, None where they are open.
        """
        logs = []
        for token in over:
            if token not in rows:
                continue
            fitting = self.table[:, 0] >= 0
            for inner, letter in enumerate(letters[token : token + self.size]):
                if letter in self.alphabet:
                    fitting = fitting & (self.table[:, inner] == self.alphabet.index(letter))
            chances = rows[token][: len(self.table)]
            sums = np.bincount(self.table[fitting, place - token], chances[fitting], minlength=len(self.alphabet))
            logs.append(np.log(np.maximum(sums / max(sums.sum(), _TINY), _TINY)))
        return _softmax(np.mean(logs, axis=0))


_TINY = 1e-12
"""Least probability, so that one token cannot rule a letter out."""


def _keep(row: np.ndarray, allowed: np.ndarray | None) -> None:
    """Takes what is not allowed out of a row of probabilities, unless nothing would be left."""
    if allowed is not None and row[: len(allowed)][allowed].sum() > 0:
        row[: len(allowed)][~allowed] = 0.0
        row[len(allowed) :] = 0.0
        row /= row.sum()


def check_masked_lm(trained: Trained) -> None:
    """Makes sure that a model can fill in.

    Raises:
        CheckpointError: It cannot.
    """
    if trained.model.config.causal:
        raise CheckpointError(
            f'The model of "{trained.run}" is causal: it sees only what comes before a place, and cannot fill a mask. '
            "A run that was pretrained with objective.masked_lm can."
        )
    if "masked_lm" not in trained.heads:
        raise CheckpointError(
            f'The model of "{trained.run}" was not trained as a masked LM, so it cannot fill a mask. A run that was '
            "pretrained with objective.masked_lm can."
        )


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
