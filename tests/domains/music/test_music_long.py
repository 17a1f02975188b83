"""Long pieces: every note of them reaches the encoder."""

from pathlib import Path

import numpy as np

from domains.music import Music
from domains.music.midi import to_midi
from domains.music.piece import parse
from seqbert.data.records import Records, lay_out
from seqbert.domain import Example, Report

NOTES = 1500


def test_row79_every_note_of_a_long_midi_file_lies_in_a_window(tmp_path: Path):
    domain = Music()
    bars = ["Bar Numerator_4 Denominator_4" if not number else "Bar" for number in range(NOTES // 4)]
    notes = " ".join(f"Position_{place} Pitch_60 Duration_24" for place in (0, 24, 48, 72))
    path = tmp_path / "long.mid"
    path.write_bytes(to_midi(parse(" ".join(f"{bar} {notes}" for bar in bars))))
    report = Report()
    (document,) = domain.read(path, report)
    text = domain.canonical(" ".join(document.segments))
    domain.use(domain.tokenizer([text], None))
    records = Records.encode([Example("long", (text,))], domain, "texts", offsets=False)
    inputs = lay_out(records, "texts", max_length=256, long="window", stride=None)
    covered = np.zeros(len(records.ids), bool)
    for _, start, stop in inputs.parts[:, 0]:
        covered[start:stop] = True
    pitches = [domain.vocabulary.id_to_token(int(token)).startswith("Pitch_") for token in records.ids[covered]]
    assert sum(pitches) == NOTES
    assert inputs.windowed == 1 and not inputs.cut and not report.tallies
