"""Measuring functions that make data: documents as they are, and the same segments in another order."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from seqbert import registry
from seqbert.data.cache import cache_folder
from seqbert.data.files import find_inputs
from seqbert.data.sampling import stream
from seqbert.domain import Report
from seqbert.errors import DataError
from seqbert.studies.measures import Rows

WHOLE, SHUFFLED = "whole.txt", "shuffled.txt"


def texts(folder: Path, seed: int, domain: str, data: list[str]) -> Rows:
    """Writes the documents of some files as plain text, and once more with their segments dealt out anew.

    ``whole.txt`` has the documents, ``shuffled.txt`` as many with as many segments each, drawn from all of them, so
    that neighbours have nothing to do with each other. A line is a segment, and blank lines stand between documents.

    Args:
        folder: Where both files go.
        seed: Of the order.
        domain: The plugin that reads the data, with its default options.
        data: Files, folders or globs, or "sample".

    Raises:
        DataError: There is no document in them.
    """
    plugin = registry.load(domain)()
    report = Report()
    inputs = find_inputs(data, plugin, cache_folder())
    made = plugin.sample().documents if inputs.sample else None
    found = itertools.chain((made or tuple)(), *(plugin.read(file.path, report) for file in inputs.files))
    documents = [[" ".join(segment.split()) for segment in document.segments] for document in found]
    if not documents:
        raise DataError(f"There is no document in {', '.join(data)}.")
    segments = [segment for document in documents for segment in document]
    order = np.random.Generator(np.random.Philox(key=[seed, stream("shuffled segments")])).permutation(len(segments))
    shuffled, place = [], 0
    for document in documents:
        shuffled.append([segments[number] for number in order[place : place + len(document)]])
        place += len(document)
    for name, written in ((WHOLE, documents), (SHUFFLED, shuffled)):
        content = "\n\n".join("\n".join(document) for document in written) + "\n"
        (folder / name).write_text(content, encoding="utf-8")
    return [{"labels": {}, "metrics": {"documents": len(documents), "segments": len(segments)}}]
