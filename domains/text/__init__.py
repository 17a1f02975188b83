"""Running text: files of many formats as documents of sentences, spelled by WordPiece, byte pairs or unigram pieces."""

from domains.text.domain import Text

__all__ = ["Text"]
