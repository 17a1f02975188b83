"""Log-probabilities of tokens that a language model cannot see: masked in turn, or those to come."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqbert.data.packing import PackedBatch, pack
from seqbert.data.windows import strided
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import CheckpointError, DataError
from seqbert.inference.trained import Trained

ROWS = 1024
"""Most rows of logits over the vocabulary that are held at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A sequence with tokens hidden.

    Attributes:
        sequence: Its number.
        hidden: Places of the tokens that are masked, rising.
        asked: Places of those whose probabilities are wanted.
    """

    sequence: int
    hidden: np.ndarray
    asked: np.ndarray


class LanguageModel:
    """A run's masked or causal language model, asked for the probabilities of tokens.

    Args:
        trained: The model.
        max_length: Most tokens of a sequence, special tokens included. Each masked token of a longer one is seen in
            the middle of a window; a causal model reads windows that begin half a window apart.

    Raises:
        CheckpointError: if the model has no language-model head.
    """

    def __init__(self, trained: Trained, max_length: int) -> None:
        if "masked_lm" not in trained.heads:
            raise CheckpointError(
                f'The run "{trained.run}" has no language-model head: only pretrained runs, and imports of checkpoints '
                f"that have one, give probabilities. It has {', '.join(trained.heads) or 'no head'}."
            )
        self.trained = trained
        self.causal = trained.model.config.causal
        self.overlap = trained.domain.overlap
        self._room = max_length - 2
        self._begin, self._end, self._mask = trained.token_ids(*SPECIAL_TOKENS[2:])
        vocabulary = trained.domain.vocabulary
        special = {*trained.token_ids(*SPECIAL_TOKENS)}
        special |= {i for i, token in vocabulary.get_added_tokens_decoder().items() if token.special}
        self._ordinary = np.ones(max(vocabulary.get_vocab().values()) + 1, bool)
        self._ordinary[list(special)] = False

    def is_ordinary(self, ids: np.ndarray) -> np.ndarray:
        """Whether each token is one of the text's, not unknown or otherwise special."""
        return np.asarray(self._ordinary[ids])

    def log_probabilities(
        self, sequences: Sequence[np.ndarray], units: Sequence[np.ndarray] | None
    ) -> list[np.ndarray]:
        """The log-probability of each token, given all others, or with a causal model those before it.

        Each token is masked by itself, or with the others of its unit where ``units`` are given (Salazar et al. 2020,
        equation 2, masks single tokens). Of tokens that overlap, all that reach one symbol are masked, and the one
        that begins with it is scored; the symbols behind that one's first are shown by the next token, so that the
        last tokens, behind which there is none, are not scored.

        Args:
            sequences: Token ids without special tokens, each ``[tokens]``.
            units: The masking unit of each token, each ``[tokens]``.

        Returns:
            Natural logarithms, each ``[tokens]``; NaN where a token cannot be scored, as unknown ones cannot.
        """
        found = [np.full(len(ids), np.nan) for ids in sequences]
        batches = self._causal_batches(sequences) if self.causal else self._masked(sequences, units)
        for batch, index, owners, places in batches:
            labels = [sequences[owner][place] for owner, place in zip(owners, places, strict=True)]
            scores = self._scores(batch, index, np.array(labels))
            for owner, place, score in zip(owners, places, scores.tolist(), strict=True):
                found[owner][place] = score
        return found

    def distributions(self, sequences: Sequence[np.ndarray], copies: Sequence[Copy]) -> Iterator[tuple[Copy, Tensor]]:
        """For each copy, in some order, log-probabilities of all tokens at the asked places, ``[asked, vocabulary]``.

        Raises:
            DataError: if a copy's hidden tokens do not fit one window.
        """
        for batch, index, group in self._copy_batches(sequences, copies):
            rows = self._rows(batch, index).cpu()
            yield from zip(group, torch.split(rows, [len(copy.asked) for copy in group]), strict=True)

    def _masked(
        self, sequences: Sequence[np.ndarray], units: Sequence[np.ndarray] | None
    ) -> Iterator[tuple[PackedBatch, np.ndarray, list[int], list[int]]]:
        copies = [
            copy
            for number, ids in enumerate(sequences)
            for copy in self._copies(number, ids, None if units is None else units[number])
        ]
        for batch, index, group in self._copy_batches(sequences, copies):
            owners = [copy.sequence for copy in group for _ in copy.asked]
            yield batch, index, owners, np.concatenate([copy.asked for copy in group]).tolist()

    def _copies(self, number: int, ids: np.ndarray, units: np.ndarray | None) -> Iterator[Copy]:
        ordinary = self._ordinary[ids]
        if self.overlap:
            for place in range(len(ids) - 1):
                hidden = np.arange(max(0, place - self.overlap), place + 1)
                if ordinary[hidden[0] : place + 2].all():
                    yield Copy(number, hidden, hidden[-1:])
        elif units is None:
            for place in np.flatnonzero(ordinary)[:, None]:
                yield Copy(number, place, place)
        elif len(ids):
            edges = np.flatnonzero(np.diff(units)) + 1
            for start, stop in pairwise([0, *edges.tolist(), len(ids)]):
                hidden = start + np.flatnonzero(ordinary[start:stop])
                if len(hidden):
                    yield Copy(number, hidden, hidden)

    def _copy_batches(
        self, sequences: Sequence[np.ndarray], copies: Sequence[Copy]
    ) -> Iterator[tuple[PackedBatch, np.ndarray, list[Copy]]]:
        """Copies of about equal length at a time, with the places of their asked tokens in the stream."""
        lengths = np.array([min(len(sequences[copy.sequence]), self._room) + 2 for copy in copies], np.int64)
        order = np.argsort(lengths, kind="stable")
        low = 0
        while low < len(order):
            high = low + max(1, self.trained.device.micro_tokens // int(lengths[order[low]]))
            while high > low + 1 and lengths[order[low:high]].sum() > self.trained.device.micro_tokens:
                high -= 1
            group = [copies[number] for number in order[low:high]]
            packed, index, base = [], [], 0
            for copy in group:
                ids = sequences[copy.sequence]
                start = self._window(copy, len(ids))
                shown = np.concatenate([[self._begin], ids[start : start + self._room], [self._end]])
                shown[copy.hidden - start + 1] = self._mask
                packed.append(shown)
                index.append(base + copy.asked - start + 1)
                base += len(shown)
            yield pack(self.trained.domain.name, packed), np.concatenate(index), group
            low += len(group)

    def _window(self, copy: Copy, length: int) -> int:
        """Where the window begins that has the hidden tokens in its middle."""
        first, last = int(copy.hidden[0]), int(copy.hidden[-1]) + 1
        if last - first > self._room:
            raise DataError(
                f"Tokens {first + 1} to {last} of a sequence are to be masked together, and the model is shown "
                f"{self._room} at once. Raise max_length as far as the model goes, or mask fewer together."
            )
        return min(max(0, (first + last) // 2 - self._room // 2), max(0, length - self._room))

    def _causal_batches(
        self, sequences: Sequence[np.ndarray]
    ) -> Iterator[tuple[PackedBatch, np.ndarray, list[int], list[int]]]:
        """Windows, each token in the first that holds it: there it is preceded by the most."""
        windows = []
        for number, ids in enumerate(sequences):
            seen = 0
            for start, stop in strided(len(ids), self._room, max(1, self._room // 2)):
                windows.append((number, start, stop, seen))
                seen = stop
        windows.sort(key=lambda window: window[2] - window[1])
        low = 0
        while low < len(windows):
            high, size = low, 0
            while high < len(windows):
                size += windows[high][2] - windows[high][1] + 2
                if high > low and size > self.trained.device.micro_tokens:
                    break
                high += 1
            packed, index, owners, places, base = [], [], [], [], 0
            for number, start, stop, seen in windows[low:high]:
                ids = sequences[number]
                new = seen + np.flatnonzero(self._ordinary[ids[seen:stop]])
                packed.append(np.concatenate([[self._begin], ids[start:stop], [self._end]]))
                index.append(base + new - start)  # the row before a token predicts it
                owners += [number] * len(new)
                places += new.tolist()
                base += stop - start + 2
            yield pack(self.trained.domain.name, packed), np.concatenate(index), owners, places
            low = high

    @torch.inference_mode()
    def _scores(self, batch: PackedBatch, index: np.ndarray, labels: np.ndarray) -> Tensor:
        """Log-probabilities of ``labels`` by the rows ``index`` of the stream, ``[targets]``."""
        hidden = self.trained.hidden(batch, torch.from_numpy(index))
        truth = torch.from_numpy(labels.astype(np.int64)).to(hidden.device)
        parts = [
            self._log_softmax(rows).gather(1, wanted[:, None]).squeeze(1)
            for rows, wanted in zip(torch.split(hidden, ROWS), torch.split(truth, ROWS), strict=True)
        ]
        return torch.cat(parts).cpu()

    @torch.inference_mode()
    def _rows(self, batch: PackedBatch, index: np.ndarray) -> Tensor:
        return self._log_softmax(self.trained.hidden(batch, torch.from_numpy(index)))

    def _log_softmax(self, hidden: Tensor) -> Tensor:
        with self.trained.device.autocast():
            logits: Tensor = self.trained.heads["masked_lm"](hidden)
        return logits.float().log_softmax(-1)
