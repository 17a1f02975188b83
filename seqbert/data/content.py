"""What a file looks like by its first bytes, for messages about files that hold something else than was expected."""

from __future__ import annotations

import codecs
import re

_SIGNATURES = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip within the compression that was taken off"),
    (b"\xfd7zXZ\0", "xz within the compression that was taken off"),
    (b"\x28\xb5\x2f\xfd", "zstd within the compression that was taken off"),
    (b"BZh", "bzip2 within the compression that was taken off"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"%PDF", "a PDF document"),
    (b"\xd0\xcf\x11\xe0", "an old Microsoft Office document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"RIFF", "a WAV or AVI file"),
    (b"fLaC", "a FLAC recording"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
    (b"MThd", "a MIDI file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet table"),
    (b"ARROW1", "an Arrow table"),
    (b"BAM\1", "a BAM file"),
    (b"CRAM", "a CRAM file"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\x93NUMPY", "a numpy array"),
    (codecs.BOM_UTF16_LE, "UTF-16 text"),
    (codecs.BOM_UTF16_BE, "UTF-16 text"),
)
_TEXTS = (
    (r"<!doctype html|<html", "an HTML page"),
    (r"<\?xml|<[A-Za-z][\w:.-]*[\s>/]", "XML"),
    (r"[{\[]", "JSON"),
    (r">", "FASTA"),
    (r"@\S[^\n]*\n[A-Za-z.*-]+\n\+", "FASTQ"),
    (r"LOCUS ", "a GenBank file"),
    (r"ID {3}", "an EMBL or Swiss-Prot file"),
    (r"# STOCKHOLM", "a Stockholm alignment"),
    (r"CLUSTAL", "a Clustal alignment"),
    (r"##gff|##gtf", "a GFF annotation"),
    (r"##fileformat=VCF", "VCF variants"),
    (r"@(?:HD|SQ)\t", "a SAM file"),
    (r"#!", "a script"),
    (r"(?:%[^\n]*\n)*X:\s*\d", "ABC notation"),
    (r"\*\*|!!!", "a Humdrum file"),
    (r"---\n", "YAML, or Markdown with a preamble"),
)
_TABLES = (("\t", "a table with tabs"), (",", "a table with commas"), (";", "a table with semicolons"))


def describe(head: bytes) -> str:
    r"""What a file looks like, as a phrase that goes on from "it looks like".

    Args:
        head: The first bytes, decompressed; some kilobytes are enough.

    >>> describe(b"%PDF-1.7 ..."), describe(b'{"a": 1}'), describe(b"a,b\n1,2\n3,4\n"), describe(b"Call me Ishmael.")
    ('a PDF document', 'JSON', 'a table with commas', 'plain text')
    >>> describe(b""), describe(b" \n"), describe(b"\x00\x01\x02\x00")
    ('an empty file', 'blank lines', 'binary data')
    """
    if not head:
        return "an empty file"
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if b"\0" in head:
        return "binary data"
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        return "blank lines"
    for pattern, kind in _TEXTS:
        if re.match(pattern, text.lstrip(), re.IGNORECASE):
            return kind
    if text.count("\ufffd") > len(text) // 10:
        return "binary data, or text that is not UTF-8"
    lines = text.split("\n")[:6]
    whole = lines[:-1] if len(lines) > 2 else lines
    for separator, kind in _TABLES:
        counts = {line.count(separator) for line in whole}
        if len(whole) > 1 and len(counts) == 1 and counts != {0}:
            return kind
    return "plain text"
