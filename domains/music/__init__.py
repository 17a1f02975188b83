"""Music: scores in ABC, MusicXML, Humdrum and MIDI as bars of notes."""

from domains.music.plugin import Music, MusicOptions

__all__ = ["Music", "MusicOptions"]
