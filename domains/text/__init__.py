"""Running text: plain text, Markdown and JSON Lines as sentences, spelled by a learned WordPiece."""

from domains.text.domain import Text

__all__ = ["Text"]
