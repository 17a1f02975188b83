"""What lies in no file of this machine: standard input, and addresses such as ``s3://bucket/key``.

Both become files in the cache first, because data is read more than once (for the vocabulary, then for the corpus)
and by several processes. An address is fetched again only when its size, tag or time has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from seqbert.errors import DataError

STANDARD_INPUT = "-"

INPUTS = "inputs"
"""The folder in the cache."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BLOCK = 1 << 20
_STAMPS = ("size", "etag", "ETag", "md5", "md5Hash", "mtime", "updated", "last_modified", "LastModified", "generation")
_UNSAFE = re.compile(r"[^\w.+-]")


def is_address(entry: str) -> bool:
    """Whether an entry under ``data:`` is an address rather than a path.

    >>> is_address("s3://genomes/human.fa.gz"), is_address("genomes/human.fa.gz"), is_address("C:/human.fa")
    (True, False, False)
    """
    return _ADDRESS.match(entry) is not None


def keep_standard_input(cache: Path) -> Path:
    """Copies standard input into the cache, under the name of its content, and returns the file.

    Raises:
        DataError: It is a terminal or empty, or the cache cannot be written.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise DataError(
            'The data is "-", standard input, and nothing is piped into it: write "zcat genome.fa.gz | seqbert ... -", '
            "or name files."
        )
    digest = hashlib.sha256()
    with _written_to(cache) as folder:
        draft = folder / f".stdin.{uuid4().hex[:8]}"
        try:
            with draft.open("wb") as file:
                while block := sys.stdin.buffer.read(_BLOCK):
                    digest.update(block)
                    file.write(block)
            if not draft.stat().st_size:
                raise DataError('The data is "-", and standard input is empty: what was to fill it has failed.')
            path = folder / f"stdin-{digest.hexdigest()[:16]}"
            if not path.exists():  # else the file stands with its time, so that its corpus is found
                draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def in_files(entries: Sequence[str], cache: Path) -> list[str]:
    """The entries, with the file that keeps standard input in the place of "-", so that they can be read again.

    Raises:
        DataError: as :func:`keep_standard_input`, or "-" stands there twice.
    """
    if entries.count(STANDARD_INPUT) > 1:
        raise DataError('The data is "-", standard input, more than once, and it can be read only once.')
    return [str(keep_standard_input(cache).absolute()) if entry == STANDARD_INPUT else entry for entry in entries]


def fetch(address: str, cache: Path, say: Callable[[str], None] = lambda what: None) -> list[Path]:
    """Local copies of the file, the folder's files or the glob that an address names, in the order of their names.

    ``fsspec`` reads the address; many kinds need a package of their own, such as s3fs for ``s3://``.

    Raises:
        DataError: The address names nothing, cannot be read, or needs a package that is not installed; or the cache
            cannot be written.
    """
    with _reading(address):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        names = _names(system, path)
        found = [(name, system.info(name)) for name in names]
    if not found:
        raise DataError(f'The address "{address}" names nothing: no file, no folder with files, no match.')
    return [_copy(system, name, info, address, cache, say) for name, info in found]


@contextmanager
def _reading(address: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise DataError(
            f'The address "{address}" needs a package that is not installed: {error}. Install it with pip, or fetch '
            "the data by other means."
        ) from error
    except Exception as error:  # each kind of storage raises its own
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f'The address "{address}" cannot be read: {said[:300]}.') from error


def _names(system: Any, path: str) -> list[str]:
    if any(character in path for character in "*?["):
        found = sorted(system.glob(path))
        return [name for match in found for name in (_inside(system, match) if system.isdir(match) else [match])]
    if system.isdir(path):
        return _inside(system, path)
    return [path] if system.exists(path) else []


def _inside(system: Any, folder: str) -> list[str]:
    def hidden(name: str) -> bool:
        return any(part.startswith(".") for part in name.removeprefix(folder).split("/"))

    return [name for name in sorted(system.find(folder)) if not hidden(name)]


def _copy(
    system: Any, name: str, info: Mapping[str, Any], address: str, cache: Path, say: Callable[[str], None]
) -> Path:
    stamp = json.dumps([address.partition("://")[0], name, *(str(info.get(key)) for key in _STAMPS)])
    safe = _UNSAFE.sub("_", PurePosixPath(name).name).lstrip(".") or "data"  # no name leads out of the folder
    with _written_to(cache) as folder:
        place = folder / hashlib.sha256(stamp.encode()).hexdigest()[:16]
        path = place / safe
        if path.exists():
            return path
        say(f"fetching {address if address.endswith(name) else name}")
        place.mkdir(exist_ok=True)
        draft = place / f".{safe}.{uuid4().hex[:8]}"
        try:
            with draft.open("wb") as file:
                for block in _blocks(system, name):
                    file.write(block)
                came, size = file.tell(), info.get("size")
            if size is not None and came != size:
                raise DataError(f'"{name}" should have {size:,} bytes, and {came:,} came: it was cut off. Try again.')
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def _blocks(system: Any, name: str) -> Iterator[bytes]:
    with _reading(name):
        source = system.open(name, "rb")
    with source:
        while True:
            with _reading(name):
                block = source.read(_BLOCK)
            if not block:
                return
            yield block


@contextmanager
def _written_to(cache: Path) -> Iterator[Path]:
    folder = cache / INPUTS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except OSError as error:
        raise DataError(
            f'The data cannot be kept in "{folder}": {error.strerror or error}. Make room there, or name another place '
            "by run.corpus_dir or $SEQBERT_CACHE."
        ) from error
