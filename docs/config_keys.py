"""Writes docs/config-keys.md: every key of a config, as ``seqbert pretrain --help`` and ``finetune --help`` print it.

Run it as ``make docs``.
"""

from __future__ import annotations

from pathlib import Path

from seqbert.config import render_help
from seqbert.training.finetune_config import FinetuneConfig
from seqbert.training.pretrain_config import PretrainConfig

PAGE = Path(__file__).resolve().parent / "config-keys.md"


def page() -> str:
    """The Markdown of docs/config-keys.md."""
    return (
        "# Every key of a config\n\n"
        "What `seqbert pretrain --help` and `seqbert finetune --help` print; [config.md](config.md) explains the "
        "shape. The options of a domain, which stand under `domains.NAME.options` and `domain.options`, are the "
        "plugin's own: `seqbert domains` lists them. Written by `make docs`.\n\n"
        f"{_section('Pretraining', PretrainConfig)}\n{_section('Fine-tuning', FinetuneConfig)}"
    )


def _section(title: str, schema: type) -> str:
    return f"## {title}\n\n```\n{render_help(schema).strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
