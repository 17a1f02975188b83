"""Writes docs/config-keys.md: every key of a pretraining config, as ``seqbert pretrain --help`` prints it.

Run it as ``make docs``.
"""

from __future__ import annotations

from pathlib import Path

from seqbert.config import render_help
from seqbert.training.pretrain_config import PretrainConfig

PAGE = Path(__file__).resolve().parent / "config-keys.md"


def page() -> str:
    """The Markdown of docs/config-keys.md."""
    return (
        "# Every key of a pretraining config\n\n"
        "What `seqbert pretrain --help` prints; [config.md](config.md) explains the shape. Written by `make docs`.\n\n"
        f"```\n{render_help(PretrainConfig).strip()}\n```\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
