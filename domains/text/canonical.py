"""The one spelling that text is brought to, as a normalizer that is saved inside the tokenizer.

Reading, training and encoding share this object, and transformers runs it out of ``tokenizer.json``, so
that text is spelled the same way everywhere.
"""

from __future__ import annotations

import re

from tokenizers import Regex, normalizers

_INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # control characters that are not white space
    "\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"  # soft hyphen, marks of layout
)
# U+200C and U+200D stay: Persian, the Indic scripts and emoji spell with them. U+200B becomes white space: it
# separates words where a script writes no spaces.
_ZERO_WIDTH_SPACE = "\u200b"
_ACCENTS = "\u0300-\u036f"

INVISIBLE = re.compile(f"[{_INVISIBLE}]")
"""What canonical text never holds: control characters, soft hyphens, byte-order and directional marks."""

_SURROGATES = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Text with U+FFFD for each half of a surrogate pair: JSON can spell them, but they are no characters."""
    return _SURROGATES.sub("\ufffd", text)


def canonical_form(lowercase: bool, strip_accents: bool) -> normalizers.Normalizer:
    """The normalizer that gives canonical text; running it twice changes nothing more.

    In order: :data:`INVISIBLE` characters go, Unicode NFC, lower case, accents go, white space becomes
    single spaces with none at the ends.

    Args:
        lowercase: Lower-case each character. Turkish dotted capital I becomes a plain i: the combining
            dot that Unicode leaves behind is removed. Nothing else is: vowel signs and voicing marks
            stay.
        strip_accents: Remove the generic combining accents (U+0300 to U+036F), whether the letter was spelled
            composed or decomposed. Marks that belong to one script (kana voicing, Indic vowel signs,
            Hebrew and Arabic points) stay.
    """
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace(Regex(f"[{_INVISIBLE}]"), ""),
        normalizers.NFC(),
    ]
    if lowercase:
        steps += [normalizers.Lowercase(), normalizers.Replace("i\u0307", "i"), normalizers.NFC()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.Replace(Regex(f"[{_ACCENTS}]"), ""), normalizers.NFC()]
    steps += [
        # Matches only what would change: a lone plain space, the common case, is passed over.
        normalizers.Replace(Regex(rf"[\s{_ZERO_WIDTH_SPACE}]{{2,}}|[^\S ]|{_ZERO_WIDTH_SPACE}"), " "),
        normalizers.Strip(),
    ]
    return normalizers.Sequence(steps)
