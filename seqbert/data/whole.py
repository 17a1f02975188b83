"""Files and folders that are there whole or not at all: made beside their place, flushed to disk, and then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

LEFT_OVER = re.compile(r"\..+\.(writing|old)")
"""Names of what was being written, or moved aside for it, when a process was killed."""


def draft_of(path: Path) -> Path:
    """Where something is made before it comes to its place."""
    return path.with_name(f".{path.name}.writing")


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A file to write, which is put in place at the end of the block; where that fails nothing is left of it.

    A reader, and a program that goes on after a kill, sees the old file or the new one.
    """
    draft = draft_of(path)
    try:
        yield draft
        flush(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Writes a text file whole."""
    with written_beside(path) as draft:
        draft.write_text(content, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON file whole."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def replace_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Fills a folder beside its place and then puts it there, in place of an older one.

    Raises:
        OSError: It cannot be written, or what it is to stand in is gone; nothing is left of it.
    """
    draft = draft_of(path)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        fill(draft)
        put_in_place(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        restore_place(path)
        raise


def put_in_place(draft: Path, path: Path) -> None:
    """Flushes a folder to disk and renames it to ``path``; one that stood there is moved aside first."""
    flush_tree(draft)
    old = _aside(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    draft.rename(path)
    flush(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore_place(path: Path) -> None:
    """Puts a folder back that was moved aside for another one which never came."""
    if not path.exists():
        with suppress(FileNotFoundError):  # nothing was, or another process of the job was quicker
            _aside(path).rename(path)


def flush_tree(folder: Path) -> None:
    """Has all files under a folder on disk, whatever happens to the machine then."""
    for path in folder.rglob("*"):
        flush(path)


def flush(path: Path) -> None:
    """Has a file, or the names in a folder, on disk."""
    if os.name == "nt" and path.is_dir():  # Windows does that by itself
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(file: IO[str]) -> bool:
    """Locks a file until it is closed; False where another process holds it.

    Raises:
        OSError: its file system, or this system, knows no locks.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError as error:
        raise OSError("no locks") from error
    except BlockingIOError:
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
