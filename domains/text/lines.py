"""The lines of text files in any encoding, in bounded memory."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path

from seqbert.data.compressed import DAMAGE, Stream, open_decompressed
from seqbert.data.content import describe
from seqbert.errors import DataError

HEAD = 1 << 16
"""Bytes at a file's beginning that say what it holds."""

LONGEST_LINE = 1 << 20
"""Characters after which a line is given in pieces."""

_BLOCK = 1 << 18  # bytes read at once
_CHARSET = re.compile(rb"<meta[^>]*charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)


def read_head(path: Path) -> bytes:
    """The first bytes of a file, decompressed.

    Raises:
        DataError: The file cannot be opened, or its compressed data is damaged from the start.
    """
    try:
        with open_decompressed(path) as file:
            return file.read(HEAD)
    except DAMAGE as error:
        raise _unreadable(path, 0, error) from error


def decoded_head(head: bytes, encoding: str) -> str:
    """The beginning of a file as text, with LF at line ends and whatever is not of the encoding replaced."""
    text = head.decode(encoding, "replace").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file, without their ends and without a byte-order mark.

    Lines end with LF, CRLF or CR. gzip (all members), bzip2, xz and zstd are told from the first bytes. A line longer
    than :data:`LONGEST_LINE` comes in pieces that all have its number: each ends behind a blank where there is one, and
    together they are the line. Memory holds one piece.

    Raises:
        DataError: The file cannot be opened, is binary, is not in ``encoding`` (the line is named), or its compressed
            data is damaged or cut off.
    """
    number, rest = 1, ""
    for text in _blocks(path, encoding):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            while len(line) > LONGEST_LINE:
                piece, line = _cut(line)
                yield number, piece
            yield number, line
            number += 1
        while len(rest) > LONGEST_LINE:
            piece, rest = _cut(rest)
            yield number, piece
    if rest:
        yield number, rest


def _cut(line: str) -> tuple[str, str]:
    blank = max(line.rfind(" ", 0, LONGEST_LINE), line.rfind("\t", 0, LONGEST_LINE))
    end = blank + 1 if blank > 0 else LONGEST_LINE
    return line[:end], line[end:]


def _blocks(path: Path, encoding: str) -> Iterator[str]:
    """The text of a file in blocks, every line end an LF."""
    number = 1
    try:
        with open_decompressed(path) as file:
            _check_beginning(path, file, encoding)
            decoder = codecs.getincrementaldecoder(encoding)()
            universal = io.IncrementalNewlineDecoder(decoder, translate=True)
            first = True
            while True:
                raw = file.read(_BLOCK)
                try:
                    text = universal.decode(raw, final=not raw)
                except UnicodeDecodeError as error:
                    raise _undecodable(path, number, encoding, error) from error
                if first and text:
                    text, first = text.removeprefix("\ufeff"), False
                if "\0" in text:
                    number += text.count("\n", 0, text.index("\0"))
                    raise DataError(f"{path}, line {number}, holds NUL bytes: the file is damaged or is not text.")
                yield text
                number += text.count("\n")
                if not raw:
                    return
    except DAMAGE as error:
        raise _unreadable(path, number - 1, error) from error


def _check_beginning(path: Path, file: Stream, encoding: str) -> None:
    """Tells a binary file by its first bytes."""
    head = file.peek(4096)[:4096]
    looks = describe(head)
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return
    if looks == "UTF-16 text":
        raise DataError(
            f"{path} is UTF-16 text. Set the option encoding to utf-16, or convert it to UTF-8, for example with "
            "iconv -f UTF-16 -t UTF-8."
        )
    if b"\0" in head:
        raise DataError(
            f"{path} holds NUL bytes, so it is no text in {encoding}, and is not read; it looks like {looks}."
        )


def _undecodable(path: Path, number: int, encoding: str, error: UnicodeDecodeError) -> DataError:
    """Names the line and the byte; ``number`` is that of the line in which the block begins."""
    before = error.object[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    number += before.count(b"\n")
    said = _CHARSET.search(read_head(path))
    hint = f" The page says that it is in {said[1].decode()}." if said else ""
    return DataError(
        f"{path}, line {number}, is not {codecs.lookup(encoding).name.upper()}: it holds the byte "
        f"0x{error.object[error.start]:02x} where none can be.{hint} Set the option encoding to the file's own, "
        "convert the file to UTF-8, for example with iconv, or mend that line."
    )


def _unreadable(path: Path, line: int, error: BaseException) -> DataError:
    after = f" after line {line}" if line else ""
    if isinstance(error, EOFError):
        return DataError(
            f"{path} ends in the middle of its compressed data{after}: it was cut off. Copy or download it again."
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return DataError(f"{path} cannot be read{after}: {reason}.")
