"""Music: scores in ABC, MusicXML, Humdrum and MIDI as bars of notes."""

from domains.music.plugin import Music, MusicOptions
from domains.music.scores import score

__all__ = ["Music", "MusicOptions", "score"]
