"""What is checked of a file before its music is read: format, size, encoding, XML entities, archive members."""

from __future__ import annotations

import codecs
import io
import re
import stat
import zipfile
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree
from xml.parsers import expat

from seqbert.data.compressed import DAMAGE, open_decompressed, without_compression
from seqbert.data.content import describe
from seqbert.domain import Report
from seqbert.errors import DataError

LARGEST_SCORE = 64 * 2**20
"""In bytes, of text formats, after decompression."""

HEAD = 2**16
"""In bytes: as much of a file as its format is told from."""

FORMATS = {
    "abc": "ABC",
    "musicxml": "MusicXML",
    "mxl": "compressed MusicXML",
    "humdrum": "Humdrum **kern",
    "mei": "MEI",
    "midi": "MIDI",
}
"""Names of the formats that :func:`score_format` tells apart, and how messages call them."""

_MARKS = (b"<score-partwise", b"<score-timewise")
_MEI = re.compile(rb"<(?:\w+:)?mei[\s>]")
_HUMDRUM = re.compile(rb"^(?:\*\*[^\s*]+\t)*\*\*kern\b", re.MULTILINE)
_ABC_NUMBER, _ABC_KEY = re.compile(rb"^X:", re.MULTILINE), re.compile(rb"^K:", re.MULTILINE)
_ABC_OTHER = re.compile(rb"^[TML]:", re.MULTILINE)
_CHARSET = re.compile(rb"^(?:%%|I:)abc-charset[ \t]+([\w.:-]+)", re.MULTILINE)
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:")


def score_format(path: Path) -> str | None:
    """Which of :data:`FORMATS` a file is, by its first bytes after decompression; None: none of them.

    The ending decides only where the content leaves it open: a ZIP archive that ends in ``.mxl`` is a score even if
    its members cannot be made out, and so is a text that ends in ``.abc`` if it has an ABC field at all.
    """
    try:
        with open_decompressed(path) as file:
            head = file.read(HEAD)
    except DAMAGE:
        return None
    return _format_of(head, without_compression(path).suffix.lower())


def no_score(path: Path) -> DataError:
    """The error for a file that is none of :data:`FORMATS`, with what it looks like.

    A file that cannot be opened, is damaged, or is empty gives the error for that.
    """
    try:
        head = read_bytes(path, LARGEST_SCORE)[:HEAD]
    except DataError as error:
        return error
    *others, last = FORMATS.values()
    return DataError(
        f"{path}: holds no score; it looks like {describe(head)}. Scores are read from {', '.join(others)} and {last}, "
        "whatever the ending. Take the file out of the data, or export it as one of these."
    )


def _format_of(head: bytes, ending: str) -> str | None:
    if head.startswith(b"MThd") or (head.startswith(b"RIFF") and head[8:12] == b"RMID"):
        return "midi"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        named = b"application/vnd.recordare.musicxml" in head or b".musicxml" in head
        contained = b"META-INF/container.xml" in head and b"epub" not in head
        return "mxl" if ending == ".mxl" or named or contained else None
    text = head.replace(b"\0", b"").lstrip(codecs.BOM_UTF8)  # UTF-16 is looked at as if it were ASCII
    if text.lstrip(b"\xff\xfe").lstrip().startswith(b"<"):
        if any(mark in text for mark in _MARKS):
            return "musicxml"
        return "mei" if _MEI.search(text) else None
    if b"\0" in head and head[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return None
    text = text.replace(b"\r", b"\n")
    if _HUMDRUM.search(text):
        return "humdrum"
    fields = (_ABC_NUMBER.search(text), _ABC_KEY.search(text), _ABC_OTHER.search(text))
    if text.startswith(b"%abc") or sum(map(bool, fields)) >= 2 or (ending == ".abc" and any(fields)):
        return "abc"
    return None


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


def as_text(data: bytes, path: Path, report: Report, encoding: str = "") -> str:
    """The text of a file, without a byte-order mark.

    Args:
        data: The content.
        path: The file, for messages.
        report: Told where the text is not UTF-8 and no encoding is given: it is then read as Latin-1, in which old
            tune books are written.
        encoding: By name; "" takes the one of a UTF-16 byte-order mark or of the directive ``abc-charset``, else
            UTF-8.

    Raises:
        DataError: The bytes are no text, or are not in the encoding that is given.
    """
    marked = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if b"\0" in data and not marked and not encoding.lower().replace("-", "").startswith(("utf16", "utf32")):
        raise DataError(f"{path}: a binary file, not a text. Check that its ending says what it is.")
    charset = _CHARSET.search(data)
    said = encoding or ("utf-16" if marked else "") or (charset[1].decode("ascii", "replace") if charset else "")
    try:
        codec = codecs.lookup(said or "utf-8").name
    except LookupError as error:
        if encoding:
            raise DataError(
                f'{path}: there is no encoding "{encoding}". Give one such as "utf-8" or "latin-1".'
            ) from error
        report.note(f"files with an unknown abc-charset read as UTF-8: {said}")
        said, codec = "", "utf-8"
    try:
        return data.decode("utf-8-sig" if codec == "utf-8" else codec)
    except UnicodeDecodeError as error:
        place = f"{path}:{data.count(10, 0, error.start) + 1}"
        if said:
            raise DataError(
                f"{place}: the text is not in {said} (byte 0x{data[error.start]:02x}). Give the encoding that it was "
                "written in, or convert the file to UTF-8."
            ) from error
        report.tally("files read as Latin-1, because they are not UTF-8", source=place)
        return data.decode("latin-1")


def score_in_xml(data: bytes, source: str) -> ElementTree.Element:
    """The root of a MusicXML document that declares no entities; nothing outside it is ever loaded.

    A ``score-timewise`` document, whose measures hold the parts, is turned into the usual ``score-partwise``, whose
    parts hold the measures: they say the same (MusicXML 4.0, "Score formats").

    Raises:
        DataError: The XML is broken, declares entities, or is no score.
    """
    root = parsed_xml(data, source)
    if root.tag == "score-timewise":
        return _partwise(root)
    if root.tag != "score-partwise":
        raise DataError(
            f"{source}: no MusicXML score: its root element is <{root.tag}>, not <score-partwise> or <score-timewise>."
        )
    return root


def _partwise(timewise: ElementTree.Element) -> ElementTree.Element:
    root = ElementTree.Element("score-partwise", timewise.attrib)
    parts: dict[str, ElementTree.Element] = {}
    for element in timewise:
        if element.tag != "measure":
            root.append(element)
            continue
        for part in element.findall("part"):
            name = part.get("id", "")
            if name not in parts:
                parts[name] = ElementTree.SubElement(root, "part", part.attrib)
            ElementTree.SubElement(parts[name], "measure", element.attrib).extend(part)
    return root


def score_in_archive(data: bytes, path: Path) -> tuple[bytes, str]:
    """The MusicXML in an ``.mxl`` archive, and its name for messages; nothing is written to the disk.

    The root file is the one that ``META-INF/container.xml`` names, else the first member that ends in
    ``.xml`` or ``.musicxml``.

    Raises:
        DataError: The archive is broken, encrypted, too large when unpacked, holds no score, or has a member
            that is a link or whose path leads out of it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            for info in archive.infolist():
                member = PurePosixPath(info.orig_filename.replace("\\", "/"))
                if member.is_absolute() or ".." in member.parts or _WINDOWS_DRIVE.match(str(member)):
                    raise DataError(
                        f"{path}: a member is called {info.orig_filename!r}, a path out of the archive. It is not read."
                    )
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise DataError(f"{path}: the member {info.filename!r} is a link. The archive is not read.")
            chosen = _root_file(archive, names, path)
            return _member(archive, chosen, path), f"{path}:{chosen}"
    except DataError:
        raise
    except Exception as error:  # damaged archives raise many kinds
        raise DataError(f"{path}: cannot be unpacked: {error}. Export the score again.") from error


def _root_file(archive: zipfile.ZipFile, names: list[str], path: Path) -> str:
    if "META-INF/container.xml" in names:
        content = _member(archive, "META-INF/container.xml", path)
        for element in parsed_xml(content, f"{path}:META-INF/container.xml").iter():
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


def parsed_xml(data: bytes, source: str) -> ElementTree.Element:
    """The root element of XML without entity declarations.

    Raises:
        DataError: The XML is broken, or declares entities.
    """
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
