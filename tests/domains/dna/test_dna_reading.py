import gzip

import numpy as np
import pytest

from domains.dna import DNA, DNAOptions
from seqbert.data.encoding import LONG_SEGMENT, MakeShard
from seqbert.domain import Report
from seqbert.errors import DataError


def read(path, content=None, strict=False, **options):
    if content is not None:
        path.write_bytes(content)
    report = Report(strict)
    return list(DNA(DNAOptions(**options)).read(path, report)), report


def test_row13_strict_makes_each_change_an_error_that_names_the_record(tmp_path):
    path = tmp_path / "x.fa"
    for content, message in (
        (b">a\nACGT\n>c\nacgtNNNNacgtRYK\n", r"x\.fa:2: lower-case bases upper-cased \(8\)"),
        (b">c\nACGTNNNNACGT\n", r"x\.fa:1: runs of 4 or more N split at \(1\)"),
        (b">c\nACGU\n", r"x\.fa:1: U written as T \(1\)"),
        (b">c\nAC-GT\n", r"x\.fa:1: gaps removed \(1\)"),
    ):
        with pytest.raises(DataError, match=message):
            read(path, content, strict=True)
    documents, report = read(path, b">c\nACGTNNRYK\n", strict=True)
    assert (documents[0].segments, report.notes) == (["ACGTNNRYK"], {"N": 2, "ambiguity codes kept": 3})


def test_row13_the_share_of_unknown_tokens_of_k_mers_is_none(tmp_path):
    documents, _ = read(tmp_path / "x.fa", b">c\nacgtNNNNacgtRYK\n")
    dna = DNA(DNAOptions(tokens="kmer", k=3))
    dna.use(dna.tokenizer([], None))
    encoded = dna.encode(documents[0].segments)
    assert len(encoded.lengths) == 2
    assert dna.vocabulary.token_to_id("[UNK]") not in encoded.ids


def test_row32_strict_names_the_columns(tmp_path):
    with pytest.raises(DataError, match=r"x\.fa:1: .*'@' at position 4, '1' at position 6"):
        read(tmp_path / "x.fa", b">r\nGAT@C1A\n", strict=True)
    _, report = read(tmp_path / "x.fa", b">r\nGAT@C1A\n")
    assert (report.repaired_records, report.repairs) == (1, {"characters that are no nucleotide written as N": 1})
    assert report.examples == {"characters that are no nucleotide written as N": [f"{tmp_path / 'x.fa'}:1"]}


@pytest.mark.parametrize(
    "name", ["biopython__NT_019265.gb", "biopython__DS830848.gb", "biopython__DS830848.embl", "biopython__blank_seq.gb"]
)
def test_row30_records_without_letters_are_skipped_and_never_read_as_n(shared_data, name):
    path = shared_data / "hostile" / "dna" / name
    documents, report = read(path)
    assert all("N" * 1000 not in segment for document in documents for segment in document.segments)
    if name != "biopython__blank_seq.gb":
        assert documents == []
    assert report.skipped_records >= 1
    assert all(source.startswith(str(path)) for sources in report.examples.values() for source in sources)
    with pytest.raises(DataError, match=name):
        read(path, strict=True)


def test_other_formats_are_read_by_what_they_hold(tmp_path):
    fastq = b"@r1 first\nACGTN\n+\nIIIII\n@r2\nGGCC\n+\nIIII\n"
    documents, _ = read(tmp_path / "reads.dat", gzip.compress(fastq))
    assert [(document.id, document.segments) for document in documents] == [("r1", ["ACGTN"]), ("r2", ["GGCC"])]
    assert DNA().reads(tmp_path / "reads.dat")


def test_what_holds_no_sequence_is_told_by_what_it_looks_like(tmp_path):
    with pytest.raises(DataError, match="PNG"):
        read(tmp_path / "x.fa", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4)


def test_windows_are_documents_with_their_places(tmp_path):
    documents, report = read(tmp_path / "x.fa", b">c1 chromosome\nACGTACGTAC\n>c2\nACG\n", window=4, stride=3)
    assert [(document.id, document.segments[0]) for document in documents] == [
        ("c1:1-4", "ACGT"),
        ("c1:4-7", "TACG"),
        ("c1:7-10", "GTAC"),
        ("c2:1-3", "ACG"),
    ]
    assert documents[1].metadata | {"description": ""} == {
        "contig": "c1",
        "window_start": "3",
        "window_end": "7",
        "description": "",
    }
    documents, report = read(tmp_path / "x.fa", b">c\nACGTNNNNNNNNACGT\n", window=4)
    assert [document.id for document in documents] == ["c:1-4", "c:13-16"]
    assert report.skips == {"no stretch of bases that is long enough for a token": 2}


@pytest.mark.parametrize("size", [1, 3, 4, 9, 10, 11, 30])
@pytest.mark.parametrize("stride", [1, 3, 4])
def test_windows_cover_every_base_and_none_lies_within_another(tmp_path, size, stride):
    documents, _ = read(tmp_path / "x.fa", b">c\n" + b"ACGTT" * 6 + b"\n>d\n" + b"A" * size, window=4, stride=stride)
    places = [tuple(int(document.metadata[f"window_{edge}"]) for edge in ("start", "end")) for document in documents]
    own = [place for place, document in zip(places, documents, strict=True) if document.metadata["contig"] == "d"]
    assert sorted({base for start, end in own for base in range(start, end)}) == list(range(size))
    assert len({end for _, end in own}) == len(own)


def test_row33_a_long_record_is_stored_as_if_it_had_been_encoded_at_once(tmp_path, monkeypatch):
    """Tokens and unit starts; the parts are of a million bases, the segment is the least that is taken for long."""
    import pyarrow as pa

    from seqbert.data import encoding
    from seqbert.data.encoding import SCAFFOLD, FileGroup
    from seqbert.data.files import InputFile

    generator = np.random.default_rng(0)
    text = np.frombuffer(b"ACGT", np.uint8)[generator.integers(0, 4, LONG_SEGMENT // 4 + 7)].tobytes() * 4
    (tmp_path / "long.fa").write_bytes(b">a\nACGT\n>long\n" + text + b"\n>b\nGGG\n")
    stored = []
    for limit in (LONG_SEGMENT, 2**40):
        monkeypatch.setattr(encoding, "LONG_SEGMENT", limit)
        folder = tmp_path / str(limit)
        (folder / SCAFFOLD).mkdir(parents=True)
        options = DNAOptions(unit="span", k=5)
        domain = DNA(options)
        tokenizer = domain.tokenizer([], None).to_str()
        MakeShard(DNA, options, tokenizer, folder)(FileGroup(0, [InputFile(tmp_path / "long.fa", True)]))
        tokens = pa.ipc.open_file(str(folder / "tokens-00000.arrow")).read_all()
        documents = pa.ipc.open_file(str(folder / "documents-00000.arrow")).read_all()
        stored.append(([tokens.column(name).to_numpy() for name in tokens.column_names], documents.to_pylist()))
    (by_parts, rows), (whole, expected) = stored
    assert rows == expected
    assert [len(column) for column in by_parts] == [len(text) + 7] * 2
    assert all((a == b).all() for a, b in zip(by_parts, whole, strict=True))
