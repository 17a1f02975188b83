"""Text in many languages: the language of each document is known, and sampling is smoothed over it."""

from domains.multilingual.domain import Multilingual

__all__ = ["Multilingual"]
