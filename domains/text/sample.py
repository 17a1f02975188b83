"""The text sample: the reference topics that pydoc shows, which are part of every Python installation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise

from domains.text.sentences import split_paragraphs, split_sentences
from seqbert.domain import Document, Sample

_RULE = re.compile(r"\s*[-=*~^\"'+#|.: ]*")  # underlines of headings, borders of tables
_CELL_BORDERS = re.compile(r"(?:^|\s)\|(?=\s|$)")
_EMPHASIS = re.compile(r"(?<![^\s(])(\*{1,2})(\w[^*]*)(?<=\w)\1(?!\w)")


def text_sample(canonical: Callable[[str], str]) -> Sample:
    """The topics as documents, one each, in alphabetical order; headings and sentences are the segments."""

    def documents() -> Iterator[Document]:
        from pydoc_data.topics import topics

        for name in sorted(topics):
            segments = [text for segment in _segments(topics[name]) if (text := canonical(segment))]
            if segments:
                yield Document(name, segments, f"pydoc_data.topics:{name}")

    return Sample(
        about="Topics of the Python reference, from the standard library's pydoc_data (PSF licence).",
        documents=documents,
        version="python-{}.{}.{}".format(*sys.version_info[:3]),
    )


def _segments(topic: str) -> Iterator[str]:
    for paragraph in split_paragraphs(topic):
        lines = paragraph.splitlines()
        text: list[str] = []
        for line, following in pairwise([*lines, ""]):
            if line.strip() and following and line[0] != " " and _is_underline(line, following):
                yield line
            elif not _RULE.fullmatch(line):
                text.append(_CELL_BORDERS.sub(" ", line))
        yield from split_sentences(_EMPHASIS.sub(r"\2", "\n".join(text)), "en")


def _is_underline(heading: str, line: str) -> bool:
    return len(set(line)) == 1 and not line[0].isalnum() and len(line) >= len(heading.rstrip())
