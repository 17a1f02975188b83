"""A folder in the making: hidden beside its final place, locked while it is filled, and renamed when it is whole.

What a build that was killed left behind is taken away by a later one. Whether a draft is still in use is known by
the lock that its maker holds. Some network file systems show locks to the same machine only, so a draft of another
machine is taken for abandoned only after a day without a change.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from seqbert.data.whole import flush_tree, lock

SCAFFOLD = ".building"
"""The folder within a draft for what only its building needs."""

UNTOUCHED = 24 * 3600.0
"""Seconds without a change after which a draft of another machine is taken for abandoned."""

_NAME = re.compile(r"\..+-[0-9a-f]{16}\.\w{8}")


class DraftFolder:
    """A folder that is being filled.

    Attributes:
        path: Where it lies; :data:`SCAFFOLD` is in it.
        folder: Its place when it is whole.
    """

    def __init__(self, path: Path, folder: Path, lock: IO[str]) -> None:
        self.path = path
        self.folder = folder
        self._lock = lock

    def publish(self, whole: str) -> None:
        """Puts the draft in its place, without the scaffold; where another process was quicker, its folder stands.

        Args:
            whole: A file without which a folder in that place is not whole, but a ruin that is replaced.

        Raises:
            OSError: it cannot be renamed.
        """
        # A file that is open cannot be removed from NFS. Without a machine's name in it, a free lock decides nothing.
        self._lock.truncate(0)
        self._lock.close()
        shutil.rmtree(self.path / SCAFFOLD)
        flush_tree(self.path)
        try:
            self.path.rename(self.folder)
        except OSError:
            if (self.folder / whole).is_file():
                return
            if not self.folder.is_dir():
                raise
            shutil.rmtree(self.folder)
            self.path.rename(self.folder)


@contextmanager
def draft_of(folder: Path) -> Iterator[DraftFolder]:
    """A new folder to fill, which is gone at the end unless it was published.

    Abandoned drafts beside ``folder`` are taken away first.

    Raises:
        OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    draft = folder.with_name(f".{folder.name}.{uuid4().hex[:8]}")
    try:
        (draft / SCAFFOLD).mkdir(parents=True)
        with _lock_of(draft).open("w", encoding="utf-8") as file:
            with suppress(OSError):  # no locks here: it stays without a machine's name, and its age decides
                lock(file)
                file.write(socket.gethostname())  # after it is locked: a free lock with a name has lost its holder
                file.flush()
            yield DraftFolder(draft, folder, file)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_abandoned(cache: Path) -> None:
    for draft in cache.iterdir():
        if _NAME.fullmatch(draft.name) and _is_abandoned(draft):
            shutil.rmtree(draft, ignore_errors=True)


def _is_abandoned(draft: Path) -> bool:
    try:
        path = _lock_of(draft)
        if path.is_file() and path.read_text(encoding="utf-8") == socket.gethostname():
            with path.open("r+") as file:
                return lock(file)
        latest = max(path.stat().st_mtime for path in (draft, *draft.rglob("*")))
    except OSError:  # somebody else's, or just gone
        return False
    return time.time() - latest > UNTOUCHED


def _lock_of(draft: Path) -> Path:
    return draft / SCAFFOLD / "lock"
