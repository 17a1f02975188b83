"""Several processes, on one machine or many, that build one corpus together."""

from __future__ import annotations

from typing import Protocol


class Crew(Protocol):
    """This process among those that were started for one job, such as by torchrun; they share a file system.

    Every process of a crew calls :meth:`wait` and :meth:`tell` equally often and in the same order. Where one of
    them ends with an error, the calls of the others raise, or whoever started the job ends them.
    """

    @property
    def rank(self) -> int:
        """The number of this process: 0 decides, and writes what is written once."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def wait(self) -> None:
        """Returns when every process has come here."""

    def tell(self, text: str) -> str:
        """What the process of rank 0 said; the ``text`` of the others is not heard."""


class Alone:
    """A crew of one."""

    rank = 0
    size = 1

    def wait(self) -> None:
        """There is nobody to wait for."""

    def tell(self, text: str) -> str:
        """The text itself."""
        return text


ALONE = Alone()
"""The crew of a process that was started by itself."""
