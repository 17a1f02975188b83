"""Compressed files, read as what they hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path

from seqbert.domain import COMPRESSIONS

Stream = io.BufferedReader | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
"""A file open for reading bytes, which also has ``peek``."""

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What opening or reading a :data:`Stream` raises; EOFError where it was cut off (OSError if it is zstd)."""


def open_decompressed(path: Path) -> Stream:
    """Opens a file for reading, decompressed if its first bytes say that it is compressed.

    gzip (all members, so BGZF too), bzip2, xz and zstd are known; the file's ending does not matter.

    Raises:
        OSError: The file cannot be opened. Reading it may raise any of :data:`DAMAGE`.
    """
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    if magic.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if magic.startswith(b"\xfd7zXZ\0"):
        return lzma.open(path, "rb")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def without_compression(path: Path) -> Path:
    """The path without the endings that name a compression, so that its suffix says what the file holds.

    >>> without_compression(Path("tunes/reels.abc.gz")).name
    'reels.abc'
    """
    while path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return path
