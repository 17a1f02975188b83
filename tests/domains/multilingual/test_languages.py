from pathlib import Path

import pycountry
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.multilingual.languages import (
    MALFORMED,
    NO_LANGUAGE,
    UNREGISTERED,
    Language,
    language_code,
    placed,
    read_tag,
    unplaced,
    usual_script,
    wikipedia_tag,
)
from domains.multilingual.scripts import has_spaces, is_written_in, main_script, script_of


@pytest.mark.parametrize(
    ("written", "tag", "script"),
    [
        ("zh-Hant-TW", "zh-Hant-TW", "Hant"),
        ("zh-TW", "zh-TW", "Hant"),  # the region implies the script
        ("cmn_hans", "zh-Hans", "Hans"),
        ("sr-Cyrl", "sr-Cyrl", "Cyrl"),
        ("sh", "sr-Latn", "Latn"),  # as CLDR replaces it
        ("sr", "sr", ""),
        ("por_BR", "pt-BR", "Latn"),
        ("de_DE.UTF-8", "de-DE", "Latn"),
        ("el-monoton", "el-monoton", ""),
        ("ell_monotonic", "el-monoton", ""),
        ("i-klingon", "tlh", ""),
        ("zh-yue", "yue", ""),
    ],
)
def test_a_tag_keeps_its_script_region_and_variant(written, tag, script):
    language, problem = read_tag(written)
    assert (language.tag, language.script, problem) == (tag, script, "")
    assert language.code == tag.partition("-")[0]


@pytest.mark.parametrize(
    ("written", "code", "problem"),
    [
        ("ell_classical", "el", MALFORMED),  # a subtag has at most eight letters
        ("en-", "en", MALFORMED),
        ("notes", None, MALFORMED),
        ("Elvish", None, MALFORMED),
        ("", None, MALFORMED),
        ("xx", None, UNREGISTERED),
        ("jp", None, UNREGISTERED),
        ("en-QQQQ", "en", UNREGISTERED),
        ("aa-foo", "aa", UNREGISTERED),
        ("de-1901-1901", "de", UNREGISTERED),
        ("und", None, NO_LANGUAGE),
        ("mul", None, NO_LANGUAGE),
        ("zxx", None, NO_LANGUAGE),
        ("x-private", None, NO_LANGUAGE),
    ],
)
def test_what_is_wrong_with_a_tag_is_told_and_the_part_before_it_counts(written, code, problem):
    language, told = read_tag(written)
    assert (language and language.code, told) == (code, problem)


@given(st.text(max_size=20))
@settings(deadline=None, max_examples=300)
def test_anything_can_be_written_for_a_tag(written):
    language, problem = read_tag(written)
    assert language is not None or problem
    placed(Path("folder") / (written.replace("/", "").replace("\0", "") or "x"))


@given(st.sampled_from([language.alpha_3 for language in pycountry.languages]))
@settings(deadline=None, max_examples=200)
def test_the_code_of_a_code_is_itself(alpha_3):
    code = language_code(alpha_3)
    if code is not None:
        assert language_code(code) == code
        assert read_tag(read_tag(alpha_3)[0].tag)[0] == read_tag(alpha_3)[0]


@pytest.mark.parametrize(
    ("path", "tag", "rest"),
    [
        ("corpus/train.de", "de", "corpus/train"),
        ("OPUS/Europarl.de-en.en.gz", "en", "OPUS/Europarl.de-en"),
        ("flores/eng_Latn.dev", "en", "flores/dev"),  # BCP 47 leaves out a script that goes without saying
        ("flores/zho_Hant.dev", "zh-Hant", "flores/dev"),
        ("udhr/cmn_hans.html", "zh-Hans", "udhr"),
        ("udhr/ell_monotonic.html", "el-monoton", "udhr"),
        ("xnli/de/train.txt", "de", "xnli/train"),
        ("xcopa/it/val.it.jsonl", "it", "xcopa/val"),
        ("data/wikiann_de/train", "de", "data/wikiann/train"),
        ("data/train_de.txt", "de", "data/train"),
        ("data/german/news.txt", "de", "data/news"),
        ("UD/de_pud-ud-test.conllu", "de", "UD/pud-ud-test"),
    ],
)
def test_a_path_tells_the_language_and_what_is_left_is_the_same_for_its_translations(path, tag, rest):
    found = placed(Path(path))
    assert (found.language.tag, found.rest) == (tag, rest)


def test_a_path_without_a_language_has_its_folder_and_name():
    assert placed(Path("corpus/notes.txt")) is None
    assert unplaced(Path("corpus/notes.txt.gz")) == "corpus/notes"


@pytest.mark.parametrize(
    ("code", "language"),
    [("de", "de"), ("simple", "en"), ("als", "gsw"), ("zh-yue", "yue"), ("zh-min-nan", "nan"), ("be-x-old", "be")],
)
def test_codes_of_wikipedias_are_the_languages_that_they_are_written_in(code, language):
    assert language_code(wikipedia_tag(code)) == language


def test_scripts_are_those_of_unicode_and_their_mixtures_those_of_iso_15924():
    letters = "aαжا我กकა"
    assert list(map(script_of, letters)) == ["Latn", "Grek", "Cyrl", "Arab", "Hani", "Thai", "Deva", "Geor"]
    assert script_of("1") == script_of(".") == script_of("\u0301") == ""
    assert main_script("漢字かな交じり文 NHK") == "Hani" and main_script("2 + 2") == ""
    assert is_written_in("Jpan", "Hani") and is_written_in("Kore", "Hang") and not is_written_in("Cyrl", "Latn")


def test_languages_without_spaces_are_told_by_their_script():
    for code in ("en", "ko", "vi", "ar", "hi"):
        assert has_spaces(usual_script(code))
    for code in ("zh", "ja", "th", "lo", "km", "my", "bo"):
        assert not has_spaces(usual_script(code))
    assert not has_spaces(usual_script("zh-Hant")) and has_spaces(usual_script("und"))


def test_a_language_can_be_compared():
    assert read_tag("de")[0] == Language("de", "de") == read_tag("German")[0]
