"""Labelled tables made from a domain's own sample: what the makers of all domains share.

The tables put real questions to real data, small enough that a tiny model learns them from random weights
within seconds. They show that the tasks work; no score on them says anything about a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from seqbert.domain import Document, Domain, Example, Report

Item = TypeVar("Item")

Table: TypeAlias = Callable[[], Iterator[Example]]
"""A labelled table of a sample: yields its examples anew on each call, in one order."""


def by_task(domain: Domain, *makers: Callable[[Domain], Iterator[Example]]) -> dict[str, Table]:
    """The tables of a sample by the name of the task that each is for.

    Args:
        domain: The domain whose sample they are made of.
        makers: Make the examples of classification, regression, tagging, span and choice, in this order.
    """
    tasks = ("classification", "regression", "tagging", "span", "choice")
    return {task: partial(maker, domain) for task, maker in zip(tasks, makers, strict=True)}


def sample_documents(domain: Domain) -> Iterator[Document]:
    """The documents of a domain's sample, read by the domain with its own options."""
    sample = domain.sample()
    if sample.documents is not None:
        yield from sample.documents()
    for path in sample.files:
        yield from domain.read(path, Report())


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most ``count`` of the items, spread evenly over their order.

    >>> evenly("abcdefghij", 4), evenly("ab", 4)
    (['a', 'c', 'f', 'h'], ['a', 'b'])
    """
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def example(number: int, document: Document, sequences: tuple[str, ...], label: Any) -> Example:
    """An example that was taken from a document and is grouped by its id.

    Args:
        number: The number of the example in its table.
        document: Where it was taken from.
        sequences: As the task wants them; see :class:`~seqbert.domain.Example`.
        label: As the task wants it.
    """
    return Example(str(number), sequences, label, document.source, {"group": document.id})


def choice(number: int, document: Document, context: str, right: str, wrong: Sequence[str]) -> Example:
    """An example of the task "choice" whose right answer stands at every place in turn.

    Args:
        number: The number of the example in its table.
        document: Where it was taken from.
        context: What is asked about.
        right: The right answer.
        wrong: The other answers.
    """
    place = number % (len(wrong) + 1)
    answers = [*wrong[:place], right, *wrong[place:]]
    return example(number, document, (context, *answers), place)
