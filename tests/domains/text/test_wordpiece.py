import hashlib
import os
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from tokenizers import Tokenizer

from domains.text import Text, words
from domains.text.domain import TextOptions
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError, DataError

PANGRAM = "the quick brown fox jumps over the lazy dog"


def trained(segments, vocab_size=None, **options):
    domain = Text(TextOptions(**options))
    domain.use(domain.tokenizer(segments, vocab_size))
    return domain


def tokens(domain, text):
    return domain.vocabulary.encode(text, add_special_tokens=False).tokens


def random_texts(count, seed=0):
    """Text of many scripts, with marks, symbols and white space of all kinds."""
    generator = random.Random(seed)
    ranges = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x400, 0x460), (0x900, 0x980), (0x3040, 0x30FF)]
    ranges += [(0x4E00, 0x4E40), (0x2000, 0x2070), (0x0, 0x20), (0x1F600, 0x1F610), (0xE00, 0xE5B)]
    for _ in range(count):
        yield "".join(chr(generator.randrange(*generator.choice(ranges))) for _ in range(30))


def test_the_canonical_form_is_reached_at_once_and_holds_no_control_characters():
    for domain in (Text(), Text(TextOptions(strip_accents=True)), Text(TextOptions(lowercase=False))):
        for text in random_texts(2000):
            canonical = domain.canonical(text)
            assert domain.canonical(canonical) == canonical
            assert unicodedata.is_normalized("NFC", canonical)
            assert canonical == " ".join(canonical.split())
            assert not any(unicodedata.category(character) == "Cc" for character in canonical)


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert Text().canonical("a\ud83d b") == "a\ufffd b"


def test_joiners_that_spell_words_stay_and_soft_hyphens_go():
    assert Text().canonical("می\u200cخواهم co\u00adop a\u200bb \ufeffc\u00a0 d") == "می\u200cخواهم coop a b c d"


def test_row2_voiced_kana_stay_voiced_even_where_accents_are_stripped():
    for options in ({}, {"strip_accents": True}):
        domain = trained(["ガ ギ グ"] * 3, 64, **options)
        encoded = domain.encode(["ガギグ"])
        assert domain.decode(encoded.ids) == "ガギグ"
        assert encoded.offsets.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_row3_lower_casing_keeps_vowel_signs():
    domain = trained(["किताब"] * 3, lowercase=True)
    assert domain.decode(domain.encode([domain.canonical("किताब")]).ids) == "किताब"


def test_row4_composed_and_decomposed_letters_are_one():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    domain = trained([composed, "cafe"] * 3)
    assert tokens(domain, composed) == tokens(domain, decomposed) != tokens(domain, "cafe")
    stripped = trained([composed] * 3, strip_accents=True)
    assert tokens(stripped, composed) == tokens(stripped, decomposed) == tokens(stripped, "cafe") == ["cafe"]


def test_row5_turkish_capital_i_leaves_no_combining_dot():
    domain = trained(["istanbul izmir"] * 3)
    assert tokens(domain, "İSTANBUL") == tokens(domain, "I\u0307STANBUL") == ["istanbul"]
    assert not any("\u0307" in token for token in domain.vocabulary.get_vocab())


@pytest.mark.parametrize("vocab_size", [7, 8, 20, 65, 100, 125, 200])
def test_row6_the_vocabulary_is_never_larger_than_asked(vocab_size):
    letters = [chr(0x430 + index) for index in range(60)]
    text = [" ".join("".join(letters[start : start + 5]) for start in range(0, 56))] * 5
    tokenizer = Text().tokenizer(text, vocab_size)
    assert tokenizer.get_vocab_size() <= vocab_size
    assert [tokenizer.id_to_token(index) for index in range(5)] == list(SPECIAL_TOKENS)
    if vocab_size == 125:  # 5 special tokens, 60 characters, each in two forms: nothing is unknown
        assert "[UNK]" not in tokenizer.encode(text[0]).tokens


def test_row6_a_vocabulary_without_room_is_refused_with_the_minimum():
    # 26 letters in two forms and 5 special tokens: 57.
    with pytest.raises(ConfigError, match="minimum is 7; 57 spell"):
        Text().tokenizer([PANGRAM], 6)
    with pytest.raises(DataError, match="no text"):
        Text().tokenizer(["", " "], 100)


def test_row6_training_twice_on_any_number_of_threads_gives_the_same_bytes():
    script = (
        "import hashlib, random; from domains.text import Text\n"
        "r = random.Random(0)\n"
        "words = [''.join(r.choices('abcdefgh', k=r.randint(1, 8))) for _ in range(2000)]\n"
        "text = [' '.join(r.choices(words, k=20)) for _ in range(2000)]\n"
        "print(hashlib.sha256(Text().tokenizer(text, 900).to_str().encode()).hexdigest())"
    )
    digests = set()
    for threads in ("1", "4"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 2 * hashlib.sha256().digest_size


def test_counting_in_bounded_memory_gives_the_same_vocabulary(monkeypatch):
    text = [PANGRAM + " " + PANGRAM[start:] for start in range(40)]
    whole = Text().tokenizer(text, 150).to_str()
    monkeypatch.setattr(words, "_CHUNKS_IN_MEMORY", 10)
    assert Text().tokenizer(text, 150).to_str() == whole


def test_beyond_a_cap_the_rarest_words_are_forgotten(monkeypatch):
    monkeypatch.setattr(words, "_WORDS_IN_MEMORY", 2)
    vocabulary = Text().tokenizer(["common frequent " * 9 + "rare"], 200).get_vocab()
    assert {"common", "frequent"} <= vocabulary.keys()
    assert "rare" not in vocabulary


def test_more_words_than_the_trainer_is_given_keep_their_proportions(monkeypatch):
    text = ["common frequent " * 900 + "frequent " * 450]
    whole = Text().tokenizer(text, 200).get_vocab()
    monkeypatch.setattr(words, "WORDS_TO_TRAINER", 100)
    assert Text().tokenizer(text, 200).get_vocab() == whole


def test_row7_unseen_characters_are_unknown_one_by_one_and_keep_their_place():
    domain = trained(["dog fog bog"] * 3)
    encoded = domain.encode(["dot😀"])
    unknown = domain.vocabulary.token_to_id("[UNK]")
    assert encoded.ids[-2:].tolist() == [unknown, unknown]
    assert encoded.offsets[-2:].tolist() == [[2, 3], [3, 4]]
    assert encoded.offsets[0, 0] == 0
    assert np.array_equal(encoded.offsets[1:, 0], encoded.offsets[:-1, 1])
    assert domain.symbols("[UNK]") == 1


def test_row8_known_letters_spell_every_word():
    domain = trained([PANGRAM])
    generator = random.Random(0)
    for _ in range(200):
        word = "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(1, 130)))
        assert "[UNK]" not in tokens(domain, word)


def test_row11_a_space_between_han_characters_shows_in_the_offsets():
    domain = trained(["大学"] * 3)
    joined, spaced = domain.encode(["大学"]), domain.encode(["大 学"])
    assert joined.ids.tolist() == spaced.ids.tolist()
    assert joined.offsets.tolist() == [[0, 1], [1, 2]]
    assert spaced.offsets.tolist() == [[0, 1], [2, 3]]
    assert trained(["大学"] * 3, split_han=False).encode(["大学"]).lengths.tolist() == [1]


def test_merges_follow_the_counts_of_pairs():
    # The example of Sennrich et al. 2016, algorithm 1, with continuations kept apart from beginnings: in "low" x 5,
    # "lower" x 2, "newest" x 6, "widest" x 3 the pairs es and st occur 9 times, then the longer est, then lo 7 times.
    text = ["low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3]
    tokenizer = Text().tokenizer(text, None)
    learned = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    characters = 5 + 2 * len(set("lowernewestwidest"))
    assert [token for token, _ in learned[characters:][:4]] == ["##es", "##est", "lo", "low"]


def test_words_are_the_masking_units():
    domain = trained(["unbelievable"] * 1 + ["un believ able"] * 9, 60)
    text = "unbelievable, un"
    encoded = domain.encode([text, "un"])
    words = [text[start:end] for start, end in encoded.offsets[: encoded.lengths[0]]]
    assert domain.unit == "word"
    assert len(words) > 3
    assert encoded.units.tolist() == [0] * (len(words) - 2) + [1, 2] + [0]


def test_symbols_are_characters():
    counts = [Text().symbols(token) for token in ("ing", "##ing", "[UNK]", "[MASK]", "[PAD]", "a b", "##")]
    assert counts == [3, 3, 1, 0, 0, 3, 2]


@pytest.mark.parametrize(
    "text",
    [
        "he said: “do not stop, don't!” (really?)",
        "well-known facts: 3.5 or 1,000 at 10:30; 1, 2 and 3.",
        "大学で食べる、そうです。はい！",
        "एक वाक्य है। दूसरा?",
        "¿qué? ¡sí! l’été «vu»",
    ],
)
def test_decoding_gives_ordinary_text_back(text):
    domain = trained([text] * 3)
    assert domain.decode(domain.encode([text]).ids) == text


def test_decoding_loses_only_spaces_beside_punctuation_symbols_and_han():
    domain = Text()
    texts = [canonical for text in random_texts(500) if (canonical := domain.canonical(text))]
    domain.use(domain.tokenizer(texts, 8192))
    for text in texts:
        ids = domain.encode([text]).ids
        if domain.vocabulary.token_to_id("[UNK]") not in ids:
            assert domain.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_a_text_that_begins_within_a_word_decodes_without_the_continuation_mark():
    domain = trained([PANGRAM])
    assert domain.decode([domain.vocabulary.token_to_id("##o"), domain.vocabulary.token_to_id("##x")]) == "ox"


def test_special_tokens_in_raw_text_are_text():
    domain = trained(["a [MASK] b [SEP] c"] * 3)
    ids = domain.encode([domain.canonical("a [MASK] b [SEP]")]).ids
    assert not set(ids.tolist()) & {0, 2, 3, 4}
    assert domain.decode(ids) == "a [mask] b [sep]"


def test_transformers_gives_the_same_ids_from_the_saved_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    domain = trained(["İstanbul ’s 大学 café — don't, " + PANGRAM] * 3)
    domain.vocabulary.save(str(tmp_path / "tokenizer.json"))
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ["The QUICK\u00adbrown  cafe\u0301, don't! 大学☃", "", "İSTANBUL"]:
        assert peer(text)["input_ids"] == ours.encode(text).ids
        canonical = domain.canonical(text)
        assert ours.encode(text, add_special_tokens=False).ids == domain.encode([canonical]).ids.tolist()
    pair = ours.encode("the fox", "the dog")
    assert peer("the fox", "the dog")["input_ids"] == pair.ids
    assert pair.type_ids == [0] * pair.tokens.index("[SEP]") + [0] + [1] * (len(pair) - pair.tokens.index("[SEP]") - 1)
