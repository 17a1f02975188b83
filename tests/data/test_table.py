"""Labelled files: their formats, their columns, and what is said of those that cannot be used."""

import gzip
import json
from pathlib import Path

import pandas
import pytest

from seqbert import registry
from seqbert.data.table import Columns, TableOptions, find_tables, read_examples
from seqbert.domain import Domain, Example, Report
from seqbert.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def text() -> Domain:
    return registry.load("text")()


def read(
    path: Path, domain: Domain, task: str = "classification", report: Report | None = None, **keys
) -> list[Example]:
    how = {name: keys.pop(name) for name in ("labelled", "multilabel") if name in keys}
    return list(read_examples([path], task, TableOptions(**keys), domain, report or Report(), **how))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_row34_only_an_empty_cell_is_missing(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "text,label\nnull,a\nNA,a\nNone,b\nnan,b\n,b\n")
    report = Report()
    examples = read(path, text, report=report)
    assert [example.sequences[0] for example in examples] == ["null", "na", "none", "nan"]
    assert report.skips == {"an empty cell": 1} and report.examples["an empty cell"] == [f"{path}:6"]


def test_row34_labels_such_as_NA_stay_labels(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\none\tNA\ntwo\tnull\n")
    assert [example.label for example in read(path, text)] == ["NA", "null"]


def test_row41_columns_that_do_not_match_are_listed_beside_those_asked_for(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "txt,y\none,1\n")
    with pytest.raises(DataError) as error:
        read(path, text, columns=Columns(sequence="text", label="label"))
    for word in (str(path), '"txt"', '"y"', 'sequence is "text"', 'label is "label"', 'Did you mean "txt"?'):
        assert word in str(error.value)


def test_row41_without_a_usual_name_the_names_that_were_looked_for_are_listed(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "txt,y\none,1\n")
    with pytest.raises(DataError, match=r'columns "txt", "y".*sequence \(sequence, seq, text.*label \(label, labels'):
        read(path, text)


def test_row41_of_several_usual_names_none_is_guessed(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "text,sentence,label\none,two,1\n")
    with pytest.raises(DataError, match='"text" and "sentence" could all be the sequence'):
        read(path, text)


def test_usual_names_are_found_in_any_case_and_pairs_together(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "ID,Premise,Hypothesis,Label\nx7,one,two,yes\n")
    [example] = read(path, text)
    assert (example.id, example.sequences, example.label) == ("x7", ("one", "two"), "yes")


def test_a_pair_of_which_one_text_is_empty_is_left_out_and_told(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.tsv", "question1\tquestion2\tlabel\none\t\t0\n\ttwo\t0\none\ttwo\t1\n")
    report = Report()
    assert [example.sequences for example in read(path, text, report=report)] == [("one", "two")]
    assert report.skips == {"an empty cell": 2}


def test_columns_go_by_number_too(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.tsv", "q\tid1\tfirst\tsecond\n1\t7\tone\ttwo\n")
    [example] = read(path, text, columns=Columns(sequence=2, pair=3, label=0, group="id1"))
    assert (example.sequences, example.label, example.metadata) == (("one", "two"), "1", {"group": "7"})


def test_names_are_for_files_without_a_header_and_a_header_goes_before_them(tmp_path: Path, text: Domain) -> None:
    names, columns = ["source", "label", "star", "sentence"], Columns(sequence="sentence", label="label")
    train = write(tmp_path / "train.tsv", "gj04\t1\t\tThe weights made the rope stretch.\n")
    test = write(tmp_path / "test.tsv", "index\tsentence\n0\tBill whistled past the house.\n")
    [example] = read(train, text, names=names, columns=columns)
    assert (example.label, example.source) == ("1", f"{train}:1")
    [example] = read(test, text, names=names, columns=columns, labelled=False)
    assert (example.id, example.label, example.source) == ("0", None, f"{test}:2")


def test_a_file_without_labels_is_an_error_only_where_labels_are_needed(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "text\none\n")
    assert read(path, text, labelled=False, columns=Columns(label="label"))[0].label is None
    with pytest.raises(DataError, match="columns.label"):
        read(path, text, columns=Columns(label="label"))


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.tsv", "\ufeffQuality\ttext\n1\tone\n")
    assert read(path, text, columns=Columns(label="Quality"))[0].label == "1"


def test_a_quote_is_an_ordinary_character_in_tsv_unless_the_options_say_otherwise(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"one\ta\ntwo"\tb\n')
    assert [example.sequences[0] for example in read(path, text)] == ['"one', 'two"']
    quoted = write(tmp_path / "b.tsv", 'text\tlabel\n"one\ttwo"\ta\n')
    assert read(quoted, text, quoted=True)[0].sequences == ("one two",)


def test_a_quoted_cell_may_hold_commas_and_lines_and_the_source_is_an_editors_line(
    tmp_path: Path, text: Domain
) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one, ""two""\nthree",a\nfour,b\n')
    examples = read(path, text)
    assert [example.sequences[0] for example in examples] == ['one, "two" three', "four"]
    assert [example.source for example in examples] == [f"{path}:2", f"{path}:4"]


def test_a_quote_that_is_never_closed_is_an_error_with_its_line(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", 'text,label\none,a\n"two,b\nthree,c\n')
    with pytest.raises(DataError, match=r"line 3: a quoted cell begins .* never closed.*data\.quoted"):
        read(path, text)


def test_rows_with_too_few_or_too_many_cells_are_left_out_and_told_with_their_lines(
    tmp_path: Path, text: Domain
) -> None:
    path = write(tmp_path / "a.tsv", "id\ttext\tlabel\n1\tone\ta\n2\ttwo\n3\tthree\tb\tc\n\n4\tfour\td\n")
    report = Report()
    assert [example.label for example in read(path, text, report=report)] == ["a", "d"]
    assert [source for sources in report.examples.values() for source in sources] == [f"{path}:3", f"{path}:4"]
    assert report.to_dict()["records"] == {"in": 4, "read": 2, "repaired": 0, "skipped": 2}


def test_rows_that_are_all_too_long_are_an_error_rather_than_shifted(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "text,label\n1,one,a\n2,two,b\n")
    with pytest.raises(
        DataError, match=r"no record that can be used: 3 cells in a row of a table with 2 columns \(2\)"
    ):
        read(path, text)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_any_line_ends_give_the_same_records(tmp_path: Path, text: Domain, name: str, end: str) -> None:
    separator = "," if name == "a.csv" else "\t"
    path = write(tmp_path / name, end.join([f"text{separator}label", f"one{separator}a", f"two{separator}b", ""]))
    assert [(example.sequences[0], example.label) for example in read(path, text)] == [("one", "a"), ("two", "b")]


def test_a_row_with_a_nul_byte_is_left_out_and_told(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", b"text,label\none,a\ntw\0o,b\n")
    report = Report()
    assert len(read(path, text, report=report)) == 1
    assert report.skips == {"a NUL byte in the row": 1}


def test_a_cell_may_be_longer_than_what_csv_takes_by_itself(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{'a' * 300_000},x\n")
    assert len(read(path, text)[0].sequences[0]) == 300_000


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zstd"])
def test_tables_are_read_compressed(tmp_path: Path, text: Domain, compression: str) -> None:
    import pyarrow

    path = tmp_path / "a.tsv.packed"
    if compression == "xz":
        import lzma

        path.write_bytes(lzma.compress(b"text\tlabel\none\ta\n"))
    else:
        with pyarrow.output_stream(str(path), compression=compression) as stream:
            stream.write(b"text\tlabel\none\ta\n")
    assert read(path, text)[0].label == "a"


def test_a_compressed_table_that_is_cut_off_is_an_error(tmp_path: Path, text: Domain) -> None:
    whole = gzip.compress("".join(f"{number},a\n" for number in range(100_000)).encode())
    path = write(tmp_path / "a.csv.gz", whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut off"):
        read(path, text, names=["text", "label"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "has no rows"),
        (b"text,label\n", "no records below its header"),
        (b"\x00\x01\x02\x03" * 100, "binary"),
        (b"PK\x03\x04 what Excel writes", "Excel"),
        ("text,label\none,a\n".encode("utf-16"), "UTF-16"),
        (b"text,label\none,a\ncaf\xe9,b\n", r"line 3, is not UTF-8.*0xe9"),
        (b"text;label\none;a\n", r"separated by ';'"),
    ],
)
def test_a_file_that_is_no_table_is_one_clear_error(tmp_path: Path, text: Domain, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "a.csv", content), text)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, text: Domain) -> None:
    with pytest.raises(DataError, match="There is no file"):
        read(tmp_path / "a.csv", text)


FRAME = pandas.DataFrame({"text": ["one", "NA", "three"], "label": [0, 1, 1]})


def test_what_pandas_writes_is_read_in_every_format(tmp_path: Path, text: Domain) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    FRAME.to_json(tmp_path / "a.json")
    FRAME.to_json(tmp_path / "b.json", orient="records")
    FRAME.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    FRAME.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.tsv", "a.json", "b.json", "a.jsonl", "a.parquet"):
        examples = read(tmp_path / name, text)
        assert [(e.id, e.sequences[0], e.label) for e in examples] == [
            ("0", "one", "0"),
            ("1", "na", "1"),
            ("2", "three", "1"),
        ], name


def test_a_line_of_json_lines_that_is_broken_is_left_out_and_told(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "one", "label": true}\n{"text": \n[1]\n\n{"text": null, "label": 1}\n')
    report = Report()
    assert [(example.id, example.label) for example in read(path, text, report=report)] == [("0", "true")]
    assert report.skips == {"the line is not valid JSON": 1, "not a JSON object": 1, "an empty cell": 1}


def test_json_that_is_no_table_is_an_error(tmp_path: Path, text: Domain) -> None:
    with pytest.raises(DataError, match="line 2, is not valid JSON"):
        read(write(tmp_path / "a.json", '[{"text": "one"},\n{"text" "two"}]'), text)
    for content in ("[1, 2]", "3", "{}", '{"a": {"b": {}}}', "[" * 100_000):
        with pytest.raises(DataError):
            read(write(tmp_path / "a.json", content), text)


def test_parquet_that_is_damaged_is_an_error(tmp_path: Path, text: Domain) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(write(tmp_path / "b.parquet", whole[: len(whole) // 2]), text)


def test_a_file_whose_ending_says_nothing_goes_by_what_is_in_it(tmp_path: Path, text: Domain) -> None:
    assert read(write(tmp_path / "a", "text\tlabel\none\ta\n"), text)[0].label == "a"
    assert read(write(tmp_path / "b.txt", "text\tlabel\none\ta\n"), text)[0].label == "a"
    assert (
        read(write(tmp_path / "c", '{"text": "one", "label": "a"}\n{"text": "two", "label": "b"}\n'), text)[1].label
        == "b"
    )
    assert read(write(tmp_path / "d", "text,label\none,a\n"), text)[0].label == "a"
    assert read(write(tmp_path / "e", "one X\ntwo Y\n\nthree Y\n"), text, "tagging")[0].label == ["X", "Y"]
    with pytest.raises(DataError, match=r"no format that is known here.*data\.format"):
        read(write(tmp_path / "f", "One line.\nAnother, and one more.\n"), text)


def test_the_format_that_is_named_is_taken_whatever_the_ending(tmp_path: Path, text: Domain) -> None:
    assert read(write(tmp_path / "a.dat", "text,label\none,a\n"), text, format="csv")[0].label == "a"


def test_a_domains_own_files_are_records_whose_label_is_the_files_or_the_folders_name(tmp_path: Path) -> None:
    protein = registry.load("protein")()
    (tmp_path / "membrane").mkdir()
    path = write(tmp_path / "membrane" / "ER.fasta.gz", gzip.compress(b">P1 SP 14\nMKIIFF\n>P2 SP 20\nMKVV\n"))
    assert [(e.id, e.sequences, e.label) for e in read(path, protein, label_from="file")] == [
        ("P1", ("MKIIFF",), "ER"),
        ("P2", ("MKVV",), "ER"),
    ]
    assert {example.label for example in read(path, protein, label_from="folder")} == {"membrane"}
    regression = read(path, protein, "regression", label_from="metadata", label_pattern=r"^\w+ SP (\d+)$")
    assert [example.label for example in regression] == [14.0, 20.0]
    by_key = read(path, protein, label_from="metadata", label_key="description", label_pattern=r"(\d)$")
    assert [example.label for example in by_key] == ["4", "0"]
    assert [example.label for example in read(path, protein, labelled=False)] == [None, None]
    with pytest.raises(DataError, match=r"data\.label_from"):
        read(path, protein)


def test_a_label_pattern_that_fits_nothing_is_an_error_that_shows_a_label(tmp_path: Path, text: Domain) -> None:
    path = write(tmp_path / "a.csv", "text,label\none,DESC:def\n")
    assert read(path, text, label_pattern="^(.*?):")[0].label == "DESC"
    with pytest.raises(DataError, match=r"label_pattern is not found \(1\)\. The first: \"DESC:def\""):
        read(path, text, label_pattern=r"(\d)")


def test_cells_can_be_files_beside_the_table(tmp_path: Path) -> None:
    music = registry.load("music")()
    (tmp_path / "tunes").mkdir()
    tune = "X:1\nT:a\nM:2/4\nL:1/8\nK:C\nCDEF|GABc|\n"
    write(tmp_path / "tunes" / "one.abc", tune)
    write(tmp_path / "tunes" / "two.abc", f"{tune}\n{tune.replace('X:1', 'X:2')}")
    table = write(tmp_path / "a.csv", "text,label\ntunes/one.abc,reel\ntunes/two.abc,jig\ntunes/no.abc,jig\n")
    report = Report()
    [example] = read(table, music, cells="path", report=report)
    [document] = music.read(tmp_path / "tunes" / "one.abc", Report())
    assert (example.sequences, example.label) == ((" ".join(document.segments),), "reel")
    assert report.skips == {
        "a file with several records, where one is expected": 1,
        "a file that the domain cannot read": 1,
    }


def test_text_that_the_domain_refuses_is_left_out_and_told(tmp_path: Path) -> None:
    dna = registry.load("dna")
    domain = dna(dna.Options(unknown="skip"))
    path = write(tmp_path / "a.csv", "seq,label\nac gt,1\nAC*?GT,1\n---,0\n")
    report = Report()
    assert [example.sequences for example in read(path, domain, report=report)] == [("ACGT",)]
    assert report.skipped_records == 2


def test_find_tables_takes_files_folders_and_globs_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.fasta", ".hidden.csv", "README.md"):
        write(tmp_path / name, "x")
    protein = registry.load("protein")()
    names = [path.name for path in find_tables(".", str(tmp_path), protein)]
    assert names == ["a.csv", "b.csv", "c.fasta"]
    assert find_tables(["b.csv", "*.csv"], str(tmp_path)) == [tmp_path / "b.csv", tmp_path / "a.csv"]
    assert find_tables(str(tmp_path / "a.csv"), "elsewhere") == [tmp_path / "a.csv"]
    for entry in ("nothing.csv", "*.parquet", []):
        with pytest.raises(DataError):
            find_tables(entry, str(tmp_path))


def test_options_that_cannot_be_meant_are_refused() -> None:
    for keys in (
        {"label_pattern": "no group"},
        {"word_pattern": "("},
        {"label_key": "organism"},
        {"names": ["a", "a"]},
    ):
        with pytest.raises(ConfigError):
            TableOptions(**keys)
    for columns in ({"sequence": -1}, {"choices": []}):
        with pytest.raises(ConfigError):
            Columns(**columns)


def test_files_and_records_are_counted(tmp_path: Path, text: Domain) -> None:
    paths = [write(tmp_path / name, json.dumps([{"text": name, "label": "x"}])) for name in ("a.json", "b.json")]
    report = Report()
    examples = list(read_examples(paths, "classification", TableOptions(), text, report))
    assert [example.sequences[0] for example in examples] == ["a.json", "b.json"]
    assert report.files == [str(path) for path in paths]
    assert report.to_dict()["records"] == {"in": 2, "read": 2, "repaired": 0, "skipped": 0}
