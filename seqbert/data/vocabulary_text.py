"""The text that a vocabulary is learned from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from seqbert.domain import Balance, Document


def vocabulary_text(documents: Callable[[], Iterable[Document]], balance: Balance | None) -> Iterator[str]:
    """The segments of all documents; where sampling is smoothed over groups, the groups in those proportions.

    A group with share ``q`` of the characters is then given in proportion to ``q ** exponent``, as multilingual BERT
    learned its vocabulary (https://github.com/google-research/bert/blob/master/multilingual.md): some documents of
    large groups are left out and those of small ones come several times, evenly over their order, and all together
    are about as much text as before. The documents are read twice for that.

    Args:
        documents: Yields the documents anew on each call, in one order.
        balance: The groups, and how they are smoothed.
    """
    if balance is None:
        for document in documents():
            yield from document.segments
        return
    rates = _rates(documents(), balance)
    due: defaultdict[str, float] = defaultdict(float)
    for document in documents():
        group = document.metadata.get(balance.key, "")
        due[group] += rates[group]
        times = int(due[group] + 0.5)
        due[group] -= times
        for _ in range(times):
            yield from document.segments


def _rates(documents: Iterable[Document], balance: Balance) -> dict[str, float]:
    """How often the documents of each group are given."""
    characters: Counter[str] = Counter()
    for document in documents:
        characters[document.metadata.get(balance.key, "")] += sum(map(len, document.segments))
    smoothed = {group: count**balance.exponent for group, count in characters.items()}
    scale = characters.total() / sum(smoothed.values()) if smoothed else 0.0
    return {group: scale * smoothed[group] / count for group, count in characters.items()}
