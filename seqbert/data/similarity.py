"""Which records are alike: found by the k-mers that they share, checked by lining them up.

A random split of homologous sequences, of near-duplicate texts or of variants of one tune scores a model on what it
has seen. Here records that are alike are brought into one cluster, of any domain and in linear memory and time:

1. *Seeds.* Stretches of low complexity are masked. Two records that have the same k tokens in the same order twice
   on one diagonal (Altschul et al. 1997, the two-hit method) are candidates. k is the length at which a stretch is
   expected about once by chance in all the data. Where there are more than ``MOST_SEEDS`` k-mers, those with the
   smallest hashes are looked at, the same ones in every record (FracMinHash; Irber et al. 2022), in up to
   ``MOST_ROUNDS`` rounds, and one in common makes a candidate. A k-mer that stands in many records ties each of them
   to its next neighbours only, as transitivity does the rest (compare Linclust; Steinegger and Söding 2018).
2. *Alignment.* Around the seeds the two are compared token by token, without gaps. The best stretch is scored in
   bits, by a model in which a token is kept with probability ``identity`` and else drawn anew; with these scores a
   stretch of ``S`` bits is expected at most ``m n 2^-S`` times by chance (Karlin and Altschul 1990). Two records are
   alike where that number, for all the data against all, is below ``CHANCE``, the stretches are equal in at least
   ``identity`` of their tokens, and they cover at least ``coverage`` of the shorter record.
3. *Clusters* are the connected components: no pair that was found alike lies in two of them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from seqbert.domain import SPECIAL_TOKENS, Augmentation, Domain

MOST_SEEDS = 2**24
"""Most k-mers that are held at once: 1.2 GB of memory."""

MOST_ROUNDS = 8
"""How often as many k-mers, those of the next smallest hashes, are looked at where there are more."""

CHANCE = 1e-3
"""How many stretches as good as the worst that makes two records alike are expected by chance, in all the data."""

_NEIGHBOURS = 8  # records with the same k-mer that each is compared with
_WINDOW = 256  # tokens around a seed that are lined up
_LOW = 32  # tokens of a window whose complexity is judged
_TIMES = 4  # equal pairs in such a window, relative to the expected number, from which it is of low complexity
_SHORTEST = 16.0  # bits of a seed, however little data there is
_NOISE = 16.0  # bits from which a stretch counts towards what is covered
_PAIRS = 2**15  # windows that are lined up at once
_CHUNK = 2**21  # tokens that are hashed at once


@dataclasses.dataclass(frozen=True, slots=True)
class Alike:
    """From where on two records count as alike.

    Attributes:
        identity: Share of equal tokens in the stretches that are lined up.
        coverage: Share of the shorter record that these stretches cover.
    """

    identity: float
    coverage: float


@dataclasses.dataclass(slots=True)
class Clusters:
    """Records in clusters, and how they were found.

    Attributes:
        labels: The cluster of each record: the number of its first member, ``[records]``.
        k: Tokens of a seed.
        sampled: Share of the k-mers that was looked at.
        compared: Pairs of records that were lined up.
        alike: Those that were alike, ``[pairs, 2]``, smaller number first.
    """

    labels: np.ndarray
    k: int
    sampled: float
    compared: int
    alike: np.ndarray


class Sequences:
    """The records to compare, as one row of tokens that lies in a file: ``add`` each, then :meth:`clusters`.

    Tokens are those of the domain, where each stands for one symbol (a residue, a base, an event) or for words.
    Overlapping k-mers, and pieces that may be cut differently in equal stretches, are compared by their letters.
    A record is compared in all variants that the domain's augmentations give: either strand, any key.

    Args:
        domain: The plugin, with its tokenizer.
        folder: Where the file lies; None: where the system keeps temporary files.
    """

    def __init__(self, domain: Domain, folder: Path | None = None) -> None:
        vocabulary = domain.vocabulary
        special = [vocabulary.token_to_id(token) for token in SPECIAL_TOKENS]
        self._nothing = np.zeros(vocabulary.get_vocab_size(), bool)
        self._nothing[[number for number in special if number is not None]] = True
        symbols = (domain.symbols(token) for token in vocabulary.get_vocab() if token not in SPECIAL_TOKENS)
        self._letters = domain.overlap > 0 or (domain.unit == "token" and max(symbols, default=1) > 1)
        self._domain = domain
        self._augmentations: list[Augmentation] = list(domain.augmentations().values())
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed in __exit__)
        self._owners: list[int] = []
        self._ends: list[int] = []
        self._sizes: list[int] = []
        self._length = 0

    def __enter__(self) -> Sequences:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, record: int, ids: np.ndarray, units: np.ndarray | None = None) -> None:
        """Adds one stretch of a record: a protein, or a sentence of a text. ``record`` numbers never fall.

        Args:
            record: The number of the record.
            ids: Its token ids, ``[tokens]``.
            units: The masking unit of each, ``[tokens]``, for augmentations; None where the domain has none.
        """
        self._sizes += [0] * (record + 1 - len(self._sizes))
        self._sizes[record] += self._write(record, ids)
        for augmentation in self._augmentations:
            for variant in range(1, augmentation.variants):
                self._write(record, augmentation.change(ids, units, variant)[0])

    def clusters(self, records: int, alike: Alike) -> Clusters:
        """The clusters of ``records`` records, of which :meth:`add` was given the stretches."""
        self._file.flush()
        if not self._length:
            return Clusters(np.arange(records), 1, 1.0, 0, np.zeros((0, 2), np.int64))
        tokens = np.memmap(self._file, np.int32, "r+", shape=(self._length,))
        sizes = np.array(self._sizes + [0] * (records - len(self._sizes)), np.int64)
        ends, owners = np.array(self._ends, np.int64), np.array(self._owners, np.int64)
        return _Comparison(tokens, ends, owners, sizes, alike).run()

    def _write(self, record: int, ids: np.ndarray) -> int:
        """Writes one stretch, and gives its length."""
        if self._letters:
            text = self._domain.decode(ids.tolist())
            codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32) + 1
        else:
            codes = np.where(self._nothing[ids], 0, ids.astype(np.int32) + 1)
        self._file.write(np.append(codes, 0).astype(np.int32).data)  # a break, which equals nothing
        self._length += len(codes) + 1
        self._owners.append(record)
        self._ends.append(self._length)
        return len(codes)


class _Comparison:
    """Finds the pairs of records that are alike. A token of 0 equals nothing: a break, or masked."""

    def __init__(
        self, tokens: np.ndarray, ends: np.ndarray, owners: np.ndarray, sizes: np.ndarray, alike: Alike
    ) -> None:
        self.tokens, self.ends, self.owners, self.sizes, self.alike = tokens, ends, owners, sizes, alike
        self.records = len(sizes)
        self.labels = np.arange(self.records)
        self.found: list[np.ndarray] = []
        self.compared = 0
        self.starts = np.append(0, ends[:-1])
        counts = np.zeros(0, np.int64)
        for start in range(0, len(tokens), _CHUNK):
            found = np.bincount(tokens[start : start + _CHUNK])
            counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
            counts[: len(found)] += found
        counts[0] = 0
        self.total = int(counts.sum())
        self.share = counts / max(1, self.total)
        self.entropy = -np.log2(max(float((self.share**2).sum()), 2.0**-32))  # bits, of order 2 (Rényi)

    def run(self) -> Clusters:
        nobody = np.zeros((0, 2), np.int64)
        if self.entropy < 0.1:
            return Clusters(np.arange(self.records), 1, 1.0, 0, nobody)
        length = max(_SHORTEST, np.log2(max(2, self.total))) / self.entropy
        slices = max(1.0, self.total / MOST_SEEDS)
        sampled = slices > 1
        k = max(2, int(np.ceil(length) if sampled else np.round(length)))
        # Blocks in which a seed is expected, however few of the k-mers are looked at.
        self.block = _WINDOW * int(np.ceil(max(1.0, 16 * slices / _WINDOW)))
        rounds = min(MOST_ROUNDS, int(np.ceil(slices)))
        for turn in range(rounds):
            key, place = self._seeds(k, turn / slices, min(1.0, (turn + 1) / slices))
            self._line_up(*self._candidates(key, place, 1 if sampled else 2))
        pairs = self._pairs()
        return Clusters(self.labels, k, min(1.0, rounds / slices), self.compared, pairs)

    def _seeds(self, k: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """Hashes, from ``low`` to ``high`` of all, of k-mers, and their places, sorted by both.

        The first round masks what is of low complexity.
        """
        hashes, places = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        least, most = np.uint64(int(low * 2.0**64)), np.uint64(min(2**64 - 1, int(high * 2.0**64)))
        before = np.zeros(0, np.int32)  # the end of the last chunk as it was: it is masked by now
        for start in range(0, len(self.tokens), _CHUNK):
            first = len(before)
            chunk = np.append(before, self.tokens[start : start + _CHUNK + k - 1 + _LOW])
            usable = chunk > 0
            size = min(_CHUNK, len(self.tokens) - start)
            if not low:
                usable &= ~self._low_complexity(chunk)
                self.tokens[start : start + size] *= usable[first : first + size]
            before = chunk[: first + size][-_LOW:]
            size = min(size, len(chunk) - first - k + 1)
            if size <= 0:
                continue
            key = np.zeros(size, np.uint64)
            whole = np.ones(size, bool)
            for step in range(k):
                part = slice(first + step, first + step + size)
                key = scrambled(key + chunk[part].astype(np.uint64))
                whole &= usable[part]
            kept = np.flatnonzero(whole & (key >= least) & (key < most))
            hashes.append(key[kept])
            places.append(kept + start)
        key, place = np.concatenate(hashes), np.concatenate(places)
        del hashes, places
        order = np.argsort(key, kind="stable")
        return key[order], place[order]

    def _low_complexity(self, chunk: np.ndarray) -> np.ndarray:
        """Whether each token lies in a window with far more equal tokens than such a window has by chance.

        As in DUST (Morgulis et al. 2006) equal pairs are counted, of words long enough to hold four bits.
        """
        word = max(1, int(np.ceil(4 / self.entropy)))
        code = chunk.astype(np.int64)
        for step in range(1, word):
            code[:-step] = code[:-step] * 1_000_003 + chunk[step:]
        size = len(code) - _LOW
        if size <= 0:
            return np.zeros(len(chunk), bool)
        equal = np.zeros(size, np.int32)
        for distance in range(1, _LOW):
            same = (code[:-distance] == code[distance:]) & (chunk[:-distance] > 0)
            sums = np.cumsum(same, dtype=np.int32)
            equal += sums[_LOW - distance - 1 :][:size]
            equal[1:] -= sums[: size - 1]
        expected = _LOW * (_LOW - 1) / 2 * 2.0 ** (-self.entropy * word)
        windows = np.flatnonzero(equal > _TIMES * max(expected, 8))
        marks = np.zeros(len(chunk) + 1, np.int32)
        np.add.at(marks, windows, 1)
        np.add.at(marks, windows + _LOW, -1)
        return np.asarray(np.cumsum(marks[:-1]) > 0)

    def _candidates(self, key: np.ndarray, place: np.ndarray, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places in two sequences that have ``least`` seeds on a diagonal in one block, and how many they have."""
        sequence = np.searchsorted(self.ends, place, side="right")
        lines: list[np.ndarray] = []
        seeds: list[np.ndarray] = []
        for step in range(1, _NEIGHBOURS + 1):
            at = np.flatnonzero(key[:-step] == key[step:])
            at = at[self.owners[sequence[at]] != self.owners[sequence[at + step]]]
            block = (place[at] - self.starts[sequence[at]]) // self.block
            line = scrambled((place[at + step] - place[at]).astype(np.uint64))
            for part in (sequence[at], sequence[at + step], block):
                line = scrambled(line + part.astype(np.uint64))
            lines.append(line)
            seeds.append(at * (_NEIGHBOURS + 1) + step)
        line, seed = np.concatenate(lines), np.concatenate(seeds)
        del lines, seeds
        order = np.argsort(line, kind="stable")
        line = line[order]
        begin = np.flatnonzero(np.append(np.ones(min(1, len(line)), bool), line[1:] != line[:-1]))
        count = np.diff(np.append(begin, len(line)))
        middle = seed[order[(begin + count // 2)[count >= least]]]
        at, step = middle // (_NEIGHBOURS + 1), middle % (_NEIGHBOURS + 1)
        return place[at], place[at + step], count[count >= least]

    def _line_up(self, one: np.ndarray, other: np.ndarray, count: np.ndarray) -> None:
        """Lines up the pairs of records that candidates point to and that are in two clusters; joins those alike."""
        sequences = [np.searchsorted(self.ends, place, side="right") for place in (one, other)]
        owners = self.owners[sequences[0]], self.owners[sequences[1]]
        pair = owners[0] * self.records + owners[1]
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        begin = np.flatnonzero(np.append(np.ones(min(1, len(pair)), bool), pair[1:] != pair[:-1]))
        seeds = np.add.reduceat(count[order], begin) if len(pair) else begin
        done = 0
        sizes = np.diff(np.append(begin, len(pair)))
        ranked = np.argsort(-seeds, kind="stable")  # the surest first, so that most others need no comparison
        while done < len(ranked):
            upto = done + max(1, int(np.searchsorted(np.cumsum(sizes[ranked[done : done + _PAIRS]]), _PAIRS)))
            chosen = ranked[done:upto]
            done = upto
            ends = np.stack([owners[0][order[begin[chosen]]], owners[1][order[begin[chosen]]]], 1)
            apart = self.labels[ends[:, 0]] != self.labels[ends[:, 1]]
            chosen, ends = chosen[apart], ends[apart]
            if not len(chosen):
                continue
            self.compared += len(chosen)
            rows = np.concatenate([order[begin[c] : begin[c] + sizes[c]] for c in chosen.tolist()])
            number = np.repeat(np.arange(len(chosen)), sizes[chosen])
            alike = self._alike(one[rows], other[rows], number, len(chosen), self.sizes[ends].min(1))
            self.found.append(np.sort(ends[alike], axis=1))
            # What was found before is a line from each record to the first of its cluster.
            before = np.stack([np.arange(self.records), self.labels], axis=1)
            self.labels = connected(self.records, np.concatenate([before, self.found[-1]]))

    def _pairs(self) -> np.ndarray:
        pairs = np.concatenate([np.zeros((0, 2), np.int64), *self.found])
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]

    def _alike(
        self, one: np.ndarray, other: np.ndarray, number: np.ndarray, pairs: int, shorter: np.ndarray
    ) -> np.ndarray:
        """Whether each of ``pairs`` pairs is alike; ``number`` says to which of them a candidate belongs."""
        bits, length, same = np.zeros(pairs), np.zeros(pairs), np.zeros(pairs)
        for start in range(0, len(one), _PAIRS // 4):
            part = slice(start, start + _PAIRS // 4)
            score, tokens, equal = self._best_stretch(one[part], other[part])
            real = score > _NOISE
            np.maximum.at(bits, number[part], score)
            np.add.at(length, number[part], tokens * real * (self.block / _WINDOW))
            np.add.at(same, number[part], equal * real * (self.block / _WINDOW))
        # Of all the data against all, on the safe side of the sizes of the two records.
        needed = np.log2(float(max(2, self.total)) ** 2 / CHANCE)
        covered = np.minimum(1.0, length / np.maximum(1, shorter))
        return np.asarray((bits >= needed) & (same >= self.alike.identity * length) & (covered >= self.alike.coverage))

    def _best_stretch(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the windows around places: bits, tokens, and equal tokens of the best stretch without gaps."""
        around = np.arange(-_WINDOW // 2, _WINDOW // 2)
        tokens = []
        for place in (one, other):
            sequence = np.searchsorted(self.ends, place, side="right")
            at = place[:, None] + around
            inside = (at >= self.starts[sequence][:, None]) & (at < self.ends[sequence][:, None])
            tokens.append(np.where(inside, self.tokens[np.where(inside, at, 0)], 0))
        valid = (tokens[0] > 0) & (tokens[1] > 0)
        same = valid & (tokens[0] == tokens[1])
        kept = self.alike.identity
        with np.errstate(divide="ignore"):
            match = np.log2(kept / self.share + 1 - kept)
        match[~np.isfinite(match)] = 0
        score = np.where(same, match[tokens[0]], np.where(valid, np.log2(max(1e-6, 1 - kept)), 0)).astype(np.float32)
        rows = np.arange(len(one))
        total = np.pad(np.cumsum(score, axis=1), ((0, 0), (1, 0)))
        lowest = np.minimum.accumulate(total, axis=1)
        end = np.argmax(total - lowest, axis=1)
        columns = np.arange(total.shape[1])
        start = np.maximum.accumulate(np.where(total == lowest, columns, 0), axis=1)[rows, end]
        lengths, equal = (np.pad(np.cumsum(mask, axis=1), ((0, 0), (1, 0))) for mask in (valid, same))
        return (
            (total - lowest)[rows, end],
            lengths[rows, end] - lengths[rows, start],
            equal[rows, end] - equal[rows, start],
        )


def connected(records: int, pairs: np.ndarray) -> np.ndarray:
    """The connected component of each of ``records`` records, by the number of its first member.

    >>> connected(5, np.array([[3, 1], [3, 4]])).tolist()
    [0, 1, 2, 1, 1]
    """
    labels = np.arange(records)
    while len(pairs):
        ends = labels[pairs]
        apart = ends[:, 0] != ends[:, 1]
        if not apart.any():
            break
        pairs, ends = pairs[apart], ends[apart]
        np.minimum.at(labels, ends.max(1), ends.min(1))
        while (labels[labels] != labels).any():
            labels = labels[labels]
    return labels


def scrambled(values: np.ndarray) -> np.ndarray:
    """Scrambles 64-bit numbers, one to one (the finaliser of SplitMix64; Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
