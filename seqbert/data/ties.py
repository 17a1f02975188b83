"""What keeps records on one side of a split, beside being equal: a metadata key, a cluster file, similarity."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqbert.data.similarity import Alike, Clusters, connected
from seqbert.data.table_files import numbered_lines
from seqbert.errors import ConfigError, DataError

SIMILARITY = "similarity"

_CDHIT_HEADER = ">Cluster "
_CDHIT_MEMBER = re.compile(r"\d+\t\d+(?:aa|nt), >(.+?)\.\.\. (?:\*|at .+)$")


@dataclasses.dataclass
class SplitConfig:
    """Which records stay on one side of a share that is held out, beside equal ones."""

    by: str | None = None
    """null: equal records only. similarity: clusters of records that share k-mers and line up; a file: clusters of
    MMseqs2 (representative, tab, member) or CD-HIT (.clstr); else a metadata key, such as organism or family."""
    identity: float = 0.3
    """With similarity: share of equal tokens in the stretches that two records have alike. Seeds are exact k-mers:
    most pairs below about half are not found whatever stands here."""
    coverage: float = 0.3
    """With similarity: share of the shorter record that these stretches cover. 0: one shared domain or quotation is
    enough."""

    def __post_init__(self) -> None:
        if self.by == "":
            raise ConfigError('by is empty: it is null, "similarity", a metadata key or a cluster file.')
        if not 0 < self.identity < 1:
            raise ConfigError(f"identity is {self.identity}; it is above 0 and below 1.")
        if not 0 <= self.coverage <= 1:
            raise ConfigError(f"coverage is {self.coverage}; it is at least 0 and at most 1.")

    @property
    def file(self) -> Path | None:
        """The cluster file that is named, if it is there."""
        if self.by is None or self.by == SIMILARITY or not Path(self.by).is_file():
            return None
        return Path(self.by)

    @property
    def alike(self) -> Alike | None:
        """From where on records are alike, where that is asked for."""
        return Alike(self.identity, self.coverage) if self.by == SIMILARITY else None


@dataclasses.dataclass(slots=True)
class Ties:
    """Groups of records that stay together.

    Attributes:
        labels: The number of each record's group, ``[records]``; -1 where a record stands alone.
        by: What the groups are by, in words.
        facts: What else a report says about them.
    """

    labels: np.ndarray
    by: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, clusters: Clusters, alike: Alike) -> Ties:
        """Those of records that were found alike."""
        facts = {
            "identity": alike.identity,
            "coverage": alike.coverage,
            "k": clusters.k,
            "sampled_share": round(clusters.sampled, 6),
            "pairs_compared": clusters.compared,
            "pairs_alike": len(clusters.alike),
        }
        return cls(clusters.labels, SIMILARITY, facts)

    def report(self, held_out: np.ndarray | None = None) -> dict[str, Any]:
        """How many groups there are, the sizes of the largest, and how many are held out.

        Args:
            held_out: Whether each record is, ``[records]``.
        """
        groups, sizes = np.unique(self.labels[self.labels >= 0], return_counts=True)
        counts = {
            "by": self.by,
            "groups": len(groups),
            "of_one_record": int((sizes == 1).sum()),
            "largest": int(sizes.max(initial=0)),
            "records_without_group": int((self.labels < 0).sum()),
        }
        if held_out is not None:
            chosen = self.labels[held_out & (self.labels >= 0)]
            held, of_them = np.unique(chosen, return_counts=True)
            counts["held_out"] = {"groups": len(held), "largest": int(of_them.max(initial=0))}
            kept = self.labels[~held_out & (self.labels >= 0)]
            counts["on_both_sides"] = len(np.intersect1d(kept, held))
        return counts | self.facts


class Grouping:
    """Groups by a metadata key or by a cluster file: :meth:`add` each record in turn, then :meth:`ties`.

    Args:
        by: The key, or the file.
        key: What to call the config key in messages, such as ``data.split.by``.

    Raises:
        DataError: The file cannot be read, or holds no clusters.
    """

    def __init__(self, by: str, key: str) -> None:
        self._by, self._key = by, key
        self._clusters = read_clusters(Path(by)) if Path(by).is_file() else None
        self._longest = max(map(len, self._clusters), default=0) if self._clusters else 0
        self._values: dict[str, int] = {}
        self._codes: list[int] = []
        self._met: set[str] = set()
        self._keys: set[str] = set()
        self._first = ""

    def add(self, name: str, metadata: Mapping[str, str]) -> None:
        """Adds a record by its id and its metadata."""
        if self._clusters is None:
            self._keys.update(metadata)
            value = metadata.get(self._by)
            self._codes.append(-1 if value is None else self._values.setdefault(value, len(self._values)))
            return
        self._first = self._first or name
        for known in self._names(name):
            if known in self._clusters:
                self._met.add(known)
                self._codes.append(self._clusters[known])
                return
        self._codes.append(-1)

    def ties(self) -> Ties:
        """The groups.

        Raises:
            DataError: No record has the key, or none is in the file.
        """
        labels = np.array(self._codes, np.int64)
        if self._clusters is None:
            if len(labels) and not self._values:
                known = f"they have {', '.join(sorted(self._keys))}" if self._keys else "they have none"
                raise DataError(
                    f'{self._key} is "{self._by}", and no record has a metadata key of that name ({known}); nor is '
                    "there a file of that name."
                )
            return Ties(labels, f"metadata: {self._by}", {})
        if len(labels) and not self._met:
            raise DataError(
                f'{self._key}: none of the {len(labels):,} records is named in "{self._by}". It names '
                f'{_examples(self._clusters)}; the first record is "{self._first}".'
            )
        return Ties(labels, f"clusters: {self._by}", {"names_without_record": len(self._clusters) - len(self._met)})

    def _names(self, name: str) -> Iterator[str]:
        """What a cluster program may have called a record: CD-HIT cuts names, MMseqs2 keeps accessions alone."""
        word = name.split(maxsplit=1)[0] if name.strip() else name
        yield name
        yield word
        yield word[: self._longest]
        yield from (part for part in word.split("|")[1:2] if part)


def read_clusters(path: Path) -> dict[str, int]:
    """The cluster of each name in a file of MMseqs2 (``_cluster.tsv``) or CD-HIT (``.clstr``), plain or compressed.

    The content tells which it is. Clusters that have a name in common count as one.

    Raises:
        DataError: The file cannot be read, holds no cluster, or has a line of neither kind.
    """
    names: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for one, other in _members(path):
        pairs.append((names.setdefault(one, len(names)), names.setdefault(other, len(names))))
    if not names:
        raise DataError(f'The cluster file "{path}" names no record.')
    labels = connected(len(names), np.array(pairs, np.int64))
    return dict(zip(names, labels.tolist(), strict=True))


def _members(path: Path) -> Iterator[tuple[str, str]]:
    """Each member of a cluster with one that stands for the cluster."""
    representative: str | None = None
    of_cdhit: bool | None = None
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        if of_cdhit is None:
            of_cdhit = line.startswith(_CDHIT_HEADER)
        if of_cdhit:
            if line.startswith(_CDHIT_HEADER):
                representative = None
                continue
            found = _CDHIT_MEMBER.match(line)
            if found is None:
                raise _strange(path, number, line, 'a line of CD-HIT, such as "0\t123aa, >P12345... *"')
            representative = representative or found[1]
            yield representative, found[1]
        else:
            cells = line.split("\t")
            if len(cells) != 2 or not cells[0] or not cells[1]:
                raise _strange(path, number, line, "a representative, a tab and a member, as MMseqs2 writes them")
            yield cells[0], cells[1]


def _strange(path: Path, number: int, line: str, expected: str) -> DataError:
    return DataError(f"{path}, line {number}: {line[:60]!r} is not {expected}.")


def _examples(names: Mapping[str, int]) -> str:
    shown = [f'"{name}"' for name in list(names)[:3]]
    return f"{len(names):,} records, such as {', '.join(shown)}"
