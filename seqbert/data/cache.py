"""The folder that corpora, and what they were made from, are kept in."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(configured: str | None = None) -> Path:
    """``configured`` (``run.corpus_dir``), else $SEQBERT_CACHE, else ``seqbert/corpora`` in the user's cache."""
    if configured is not None:
        return Path(configured).expanduser()
    if "SEQBERT_CACHE" in os.environ:
        return Path(os.environ["SEQBERT_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "seqbert" / "corpora"
