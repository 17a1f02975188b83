"""What is checked of a file before its music is read: size, encoding, XML entities, archive members."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree
from xml.parsers import expat

from seqbert.data.compressed import DAMAGE, open_decompressed
from seqbert.domain import Report
from seqbert.errors import DataError

LARGEST_SCORE = 64 * 2**20
"""In bytes, of text formats, after decompression."""


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole file, decompressed if it is compressed.

    Raises:
        DataError: It cannot be opened, is damaged or cut off, is empty, or holds more than ``limit`` bytes.
    """
    try:
        with open_decompressed(path) as file:
            data = file.read(limit + 1)
    except DAMAGE as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}). Fetch it again, or take it out of the data.") from error
    if not data:
        raise DataError(f"{path}: the file is empty. Take it out of the data.")
    if len(data) > limit:
        raise DataError(
            f"{path}: larger than {limit // 2**20} MiB, which no score of this format is. Take the file out "
            "of the data."
        )
    return data


def as_text(data: bytes, path: Path, report: Report) -> str:
    """UTF-16 by its byte-order mark, else UTF-8, else Latin-1, which is told to the report.

    Raises:
        DataError: The bytes are no text.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif b"\0" in data:
        raise DataError(f"{path}: a binary file, not a text. Check that its ending says what it is.")
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        report.tally("files read as Latin-1, because they are not UTF-8")
        return data.decode("latin-1")


def holds_score(path: Path) -> bool:
    """Whether an ``.xml`` file, compressed or not, looks like MusicXML, by its first 64 KiB."""
    try:
        with open_decompressed(path) as file:
            head = file.read(2**16).replace(b"\0", b"")  # UTF-16 is read as if it were ASCII
    except DAMAGE:
        return False
    return b"<score-partwise" in head or b"<score-timewise" in head


def score_in_xml(data: bytes, source: str) -> ElementTree.Element:
    """The root of a ``score-partwise`` document that declares no entities; nothing outside it is ever loaded.

    Raises:
        DataError: The XML is broken, declares entities, or is no such document.
    """
    root = _parsed(data, source)
    if root.tag == "score-timewise":
        raise DataError(
            f"{source}: a timewise MusicXML score, which is not supported. Export it again as "
            "score-partwise, the form that notation programs write."
        )
    if root.tag != "score-partwise":
        raise DataError(f"{source}: no MusicXML score: its root element is <{root.tag}>, not <score-partwise>.")
    return root


def score_in_archive(data: bytes, path: Path) -> tuple[bytes, str]:
    """The MusicXML in an ``.mxl`` archive, and its name for messages; nothing is written to the disk.

    The root file is the one that ``META-INF/container.xml`` names, else the first member that ends in
    ``.xml`` or ``.musicxml``.

    Raises:
        DataError: The archive is broken, encrypted, too large when unpacked, holds no score, or has a member
            whose path leads out of it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            for name in names:
                member = PurePosixPath(name.replace("\\", "/"))
                if member.is_absolute() or ".." in member.parts or member.parts[:1] == ("C:",):
                    raise DataError(f"{path}: a member is called {name!r}, a path out of the archive. It is not read.")
            chosen = _root_file(archive, names, path)
            return _member(archive, chosen, path), f"{path}:{chosen}"
    except DataError:
        raise
    except Exception as error:  # damaged archives raise many kinds
        raise DataError(f"{path}: cannot be unpacked: {error}. Export the score again.") from error


def _root_file(archive: zipfile.ZipFile, names: list[str], path: Path) -> str:
    if "META-INF/container.xml" in names:
        content = _member(archive, "META-INF/container.xml", path)
        for element in _parsed(content, f"{path}:META-INF/container.xml").iter():
            named = element.get("full-path", "")
            if element.tag.rpartition("}")[2] == "rootfile" and named in names:
                return named
    for name in names:
        if name.lower().endswith((".xml", ".musicxml")) and not name.startswith(("META-INF/", "__MACOSX/")):
            return name
    raise DataError(f"{path}: the archive holds no MusicXML.")


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    with archive.open(name) as file:
        data = file.read(LARGEST_SCORE + 1)
    if len(data) > LARGEST_SCORE:
        raise DataError(f"{path}: {name!r} is larger than {LARGEST_SCORE // 2**20} MiB when unpacked. It is not read.")
    return data


def _parsed(data: bytes, source: str) -> ElementTree.Element:
    """The root element of XML without entity declarations."""
    parser = expat.ParserCreate()

    def refuse(name: str, *_: object) -> None:
        raise DataError(
            f"{source}: declares the XML entity {name!r}. No score needs one, and entities are how a small "
            "file is made to fill the memory; the file is not read."
        )

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
        return ElementTree.fromstring(data)
    except (expat.ExpatError, ElementTree.ParseError, LookupError, ValueError) as error:
        raise DataError(f"{source}: the XML is broken: {error}. Export the score again.") from error
