import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from seqbert.domain import Report
from seqbert.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def plugin(checkout) -> Iterator[ModuleType]:
    """The example's package, imported from its folder without being installed."""
    sys.path.insert(0, str(checkout / "examples" / "seqbert-smiles"))
    yield importlib.import_module("seqbert_smiles")
    sys.path.pop(0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "seqbert_smiles"]:
        del sys.modules[name]


def sample_texts(domain) -> list[str]:
    report = Report()
    texts = [document.segments[0] for file in domain.sample().files for document in domain.read(file, report)]
    assert report.skipped_records == 0
    return texts


def test_every_molecule_of_the_sample_survives_a_round_trip(plugin):
    domain = plugin.Smiles()
    texts = sample_texts(domain)
    domain.use(domain.tokenizer(texts, None))
    assert len(texts) == 1000
    for text in texts:
        encoded = domain.encode([text])
        assert domain.decode(encoded.ids) == text
        assert len(encoded.ids) == domain.symbols(text)


def test_an_atom_with_its_brackets_is_one_token(plugin):
    domain = plugin.Smiles()
    alanine = "C[C@H](N)C(=O)[O-]"
    domain.use(domain.tokenizer([alanine], None))
    encoded = domain.encode([alanine])
    assert [alanine[start:end] for start, end in encoded.offsets] == [
        *("C", "[C@H]", "(", "N", ")", "C", "(", "=", "O", ")", "[O-]")
    ]


def test_no_molecule_can_produce_a_special_token(plugin):
    domain = plugin.Smiles()
    tokenizer = domain.tokenizer(["CSPKU"], None)
    domain.use(tokenizer)
    for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"):
        assert tokenizer.token_to_id(token) not in domain.encode([f"C{token}C"]).ids


def test_lines_that_are_no_smiles_are_skipped_and_counted(plugin, tmp_path):
    path = tmp_path / "mixed.smi"
    path.write_text("smiles name\nCCO\tethanol\n\nC1CC broken ring\nc1ccccc1\n[MASK] x\n", encoding="utf-8")
    report = Report()
    documents = list(plugin.Smiles().read(path, report))
    assert [(document.id, document.segments) for document in documents] == [
        ("ethanol", ["CCO"]),
        ("line 5", ["c1ccccc1"]),
    ]
    assert report.skips == {"not SMILES": 2, "a ring that is not closed": 1}
    assert report.tallies == {"blank lines": 1}


def test_salts_can_be_stripped_and_are_then_reported_as_repaired(plugin, tmp_path):
    path = tmp_path / "salt.smi"
    path.write_text("CC(=O)[O-].[Na+] sodium acetate\nCCO ethanol\n", encoding="utf-8")
    report = Report()
    documents = list(plugin.Smiles(plugin.SmilesOptions(salts="strip")).read(path, report))
    assert [document.segments for document in documents] == [["CC(=O)[O-]"], ["CCO"]]
    assert report.repaired_records == 1


@pytest.mark.parametrize("content", [b"\xff\xfeC\x00", b"CC\x00O\n"])
def test_a_binary_file_is_refused_by_name(plugin, tmp_path, content):
    path = tmp_path / "binary.smi"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"binary\.smi"):
        list(plugin.Smiles().read(path, Report()))


def test_a_vocabulary_keeps_the_most_frequent_symbols_and_its_size(plugin):
    domain = plugin.Smiles()
    tokenizer = domain.tokenizer(["CCCO", "CCN", "CO"], 7)
    assert tokenizer.get_vocab_size() == 7
    assert tokenizer.token_to_id("C") == 5
    assert tokenizer.token_to_id("O") == 6
    with pytest.raises(ConfigError, match="vocab_size"):
        domain.tokenizer(["C"], 5)


@pytest.mark.slow
def test_an_installed_plugin_is_listed_and_pretrains_without_a_change_to_seqbert(checkout, environment, build_wheel):
    example = checkout / "examples" / "seqbert-smiles"
    environment.install(build_wheel(checkout), build_wheel(example))

    listed = json.loads(environment.run("seqbert", "domains", "--json"))
    assert {domain["name"]: domain["package"] for domain in listed}["smiles"] == "seqbert-smiles"

    run = environment.folder / "runs" / "smiles"
    environment.run(
        *("seqbert", "pretrain", example / "smiles.yaml", "--output", run),
        *("--training.steps", 5, "--training.evaluate_every", 5, "--model.preset", "bert-tiny"),
        *("--run.device", "cpu"),
    )
    assert (run / "model" / "model.safetensors").is_file()
    report = json.loads((run / "data.json").read_text(encoding="utf-8"))
    assert "smiles" in json.dumps(report)
