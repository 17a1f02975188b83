"""Which records are held out: by their contents, so that it is the same in every run and nothing leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import blake2b

import numpy as np

from seqbert.domain import Example
from seqbert.errors import DataError

_EXCHANGED = 1000  # most clusters of which every pair is looked at; more are fine enough to come near without
_NOTHING = 1e-6  # records squared: what rounding errors may amount to


def hold_out(
    examples: Sequence[Example],
    share: float,
    *,
    stratum: Callable[[Example], Hashable] | None = None,
    group: str | None = None,
    ties: Sequence[int] | None = None,
    labels: Callable[[Example], Iterable[Hashable]] | None = None,
) -> tuple[list[Example], list[Example]]:
    """Divides examples into those that are kept and those that are held out, both in their order.

    Records with equal sequences are on one side, and so are whole groups; within that the share of each stratum, and
    of all records, is reached as nearly as it goes. The choice depends on the records alone: neither on a seed nor
    on their order.

    Args:
        examples: The records.
        share: The share that is held out, above 0 and below 1.
        stratum: Gives what is shared out evenly, such as the label; None: records as such.
        group: A metadata key; records with the same value are on one side. A record without it stands alone.
        ties: For each record the number of a group that stays together, or -1 where it stands alone.
        labels: Gives what training must see: the last records that have one of these are kept.

    Returns:
        The records that are kept, and those that are held out; both have at least one.

    Raises:
        DataError: ``share`` is out of range, no record has the key ``group``, or the records cannot be divided.
    """
    if not 0 < share < 1:
        raise DataError(f"The share that is held out is {share}; it must be above 0 and below 1.")
    clusters = _clusters(examples, group, ties)
    if len(clusters) < 2:
        together = f"of one group by {group}" if group else "equal" if ties is None else "of one group"
        why = (
            f"all {len(examples)} records are {together}" if len(examples) > 1 else f"there are {len(examples)} records"
        )
        raise DataError(f"No share can be held out: {why}. Name a file for validation instead.")
    counts = [Counter(stratum(examples[place]) if stratum else None for place in places) for places in clusters]
    held = _chosen(counts, share)
    if labels is not None:
        _give_back(held, [{name for place in places for name in labels(examples[place])} for places in clusters])
    held_out = {place for cluster in held for place in clusters[cluster]}
    return (
        [example for place, example in enumerate(examples) if place not in held_out],
        [example for place, example in enumerate(examples) if place in held_out],
    )


def take(examples: Sequence[Example], size: int) -> list[Example]:
    """``size`` of the examples, or all if there are no more, in their order.

    The choice depends on the records alone, and a smaller one is part of a larger one.
    """
    order = sorted(range(len(examples)), key=lambda place: (_digest("take", examples[place]), place))
    return [examples[place] for place in sorted(order[:size])]


def shared_sequences(train: Sequence[Example], other: Sequence[Example], place: int | None = None) -> int:
    """How many records of ``other`` have sequences that a record of ``train`` has too.

    Args:
        train: The records that are trained on.
        other: Records to be scored.
        place: Which of their sequences is compared, such as the context of a question; None: all of them together.
    """
    wanted = slice(None) if place is None else slice(place, place + 1)
    known = {example.sequences[wanted] for example in train}
    return sum(example.sequences[wanted] in known for example in other)


def _clusters(examples: Sequence[Example], group: str | None, tied: Sequence[int] | None) -> list[list[int]]:
    """The places of records that must stay together, in an order that their contents decide."""
    if group is not None and examples and not any(group in example.metadata for example in examples):
        keys = sorted({key for example in examples for key in example.metadata})
        known = f"they have {', '.join(keys)}" if keys else "they have none"
        raise DataError(
            f'No record has the metadata key "{group}", by which data.group asks to keep records together; {known}.'
        )
    parents = list(range(len(examples)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    first: dict[Hashable, int] = {}
    for place, example in enumerate(examples):
        ties: list[Hashable] = [example.sequences]
        if group is not None and group in example.metadata:
            ties.append(example.metadata[group])
        if tied is not None and tied[place] >= 0:
            ties.append(tied[place])
        for tie in ties:
            parents[root(place)] = root(first.setdefault(tie, place))
    members: dict[int, list[int]] = {}
    for place in range(len(examples)):
        members.setdefault(root(place), []).append(place)
    digests = [_digest("hold out", example, group) for example in examples]

    def order(places: list[int]) -> bytes:
        found = {digests[place] for place in places}
        least = min(found)
        # The least of many numbers is a small one: without another draw large clusters would always come first.
        return least if len(found) == 1 else blake2b(least, digest_size=8).digest()

    return sorted(members.values(), key=order)


def _chosen(counts: Sequence[Counter[Hashable]], share: float) -> set[int]:
    """Numbers of the clusters to hold out: taken in order where that brings the strata nearer to their share."""
    total: Counter[Hashable] = Counter()
    for count in counts:
        total.update(count)
    missing = {name: share * count for name, count in total.items()}
    sizes = [count.total() for count in counts]
    lacking = share * sum(sizes)
    held: set[int] = set()

    def gain(cluster: int, sign: int) -> float:
        """By how much the squared distance of the strata from their share falls if a cluster is moved."""
        return sum(count * (2 * sign * missing[name] - count) for name, count in counts[cluster].items())

    def move(cluster: int, sign: int) -> None:
        nonlocal lacking
        (held.add if sign > 0 else held.discard)(cluster)
        lacking -= sign * sizes[cluster]
        for name, count in counts[cluster].items():
            missing[name] -= sign * count

    for cluster in range(len(counts)):
        if gain(cluster, 1) > 0:
            move(cluster, 1)
    # Rare strata are each rounded to the nearest; together that may be far from the share of all records. What brings
    # it nearer is moved, in each round at most one cluster of a stratum, those first that their strata can best spare.
    moved = True
    while moved:
        moved, touched = False, set[Hashable]()
        signs = [-1 if cluster in held else 1 for cluster in range(len(counts))]
        for cluster in sorted(range(len(counts)), key=lambda cluster: -gain(cluster, signs[cluster])):
            if touched.isdisjoint(counts[cluster]):
                sign, size = signs[cluster], sizes[cluster]
                if gain(cluster, sign) + size * (2 * sign * lacking - size) > _NOTHING:
                    move(cluster, sign)
                    moved = True
                    touched.update(counts[cluster])
    if len(counts) <= _EXCHANGED and max(sizes) > 1:
        _exchange(counts, share, held)
    if not held:
        held.add(min(range(len(counts)), key=lambda cluster: sizes[cluster]))
    if len(held) == len(counts):
        held.remove(max(range(len(counts)), key=lambda cluster: sizes[cluster]))
    return held


def _exchange(counts: Sequence[Counter[Hashable]], share: float, held: set[int]) -> None:
    """Exchanges a cluster that is held out for one that is kept, the best pair first, as long as that helps."""
    names = list(dict.fromkeys(name for count in counts for name in count))
    table = np.array([[count[name] for name in names] + [count.total()] for count in counts], np.float64)
    while 0 < len(held) < len(counts):
        inside = np.array(sorted(held))
        outside = np.setdiff1d(np.arange(len(counts)), inside)
        missing = share * table.sum(axis=0) - table[inside].sum(axis=0)
        pairs = [((missing + table[cluster] - table[outside]) ** 2).sum(axis=1) for cluster in inside]
        best = int(np.argmin([distances.min() for distances in pairs]))
        if pairs[best].min() > (missing**2).sum() - _NOTHING:
            return
        held.remove(int(inside[best]))
        held.add(int(outside[np.argmin(pairs[best])]))


def _give_back(held: set[int], labels: Sequence[set[Hashable]]) -> None:
    """Keeps a cluster with each label that would else be held out altogether, as long as one cluster stays held out."""
    seen = {name for cluster, names in enumerate(labels) if cluster not in held for name in names}
    for cluster in sorted(held):
        if len(held) > 1 and not labels[cluster] <= seen:
            held.remove(cluster)
            seen |= labels[cluster]


def _digest(use: str, example: Example, group: str | None = None) -> bytes:
    """A number drawn by what an example is, or by its group."""
    if group is not None and group in example.metadata:
        parts: tuple[str, ...] = (example.metadata[group],)
    else:
        parts = example.sequences if use == "hold out" else (*example.sequences, example.id)
    digest = blake2b(use.encode(), digest_size=8)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
