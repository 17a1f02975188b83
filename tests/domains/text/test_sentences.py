"""Where sentences end, in hard cases and in scripts of many kinds."""

import pytest

from domains.text.sentences import split_paragraphs, split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith paid $3.50 to Mr. Jones.", "He left at 10 a.m. on Monday."]),
        ("en", ['"Who is it?" she asked.', "Nobody answered!"]),
        ("en", ["The U.S. economy grew.", "See www.example.org for more."]),
        ("de", ["Das kostet z. B. 3,50 Euro.", "Dr. Müller zahlt."]),
        ("fr", ["Elle a dit « oui ».", "Où est-il ?"]),
        ("hi", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("ja", ["これは文です。", "「はい」と言った。"]),
        ("zh", ["这是一句话。", "那是另一句！"]),
        ("ar", ["هل هذا سؤال؟", "نعم هذا سؤال."]),
        ("und", ["One sentence.", "Another one."]),
        ("th", ["ภาษาไทยไม่มีจุดจบประโยค มีแต่ช่องว่าง"]),
        ("lo", ["ພາສາລາວ ບໍ່ມີຈຸດ"]),
    ],
)
def test_sentences_end_where_a_reader_sees_them_end(language, sentences):
    joined = ("" if language in ("ja", "zh") else " ").join(sentences)
    assert split_sentences(joined, language) == sentences


def test_line_breaks_within_a_paragraph_are_spaces_and_blank_lines_separate():
    assert split_sentences("One\n  two.\nThree.", "en") == ["One two.", "Three."]
    assert split_paragraphs("a\nb\n \nc") == ["a\nb", "c"]
    assert split_sentences(" \n", "en") == []
