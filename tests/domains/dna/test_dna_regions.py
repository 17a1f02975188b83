import gzip
import pickle
import zlib

import numpy as np
import pytest

from domains.dna import DNA, DNAOptions, regions, reverse_complement
from domains.dna.regions import Genome, Region, parse_locus
from seqbert.domain import Report
from seqbert.errors import DataError

GENERATOR = np.random.default_rng(0)
CONTIGS = {
    name: "".join(GENERATOR.choice(list("ACGTacgtN"), size))
    for name, size in {"chr1": 1000, "chr2": 60, "e": 7}.items()
}


def fasta(contigs=CONTIGS, width=60, end="\n"):
    text = ""
    for name, sequence in contigs.items():
        lines = [sequence[place : place + width] for place in range(0, len(sequence), width)]
        text += f">{name} a contig{end}" + "".join(line + end for line in lines)
    return text.encode()


def bgzip(content, size=100):
    """Blocks as the SAM specification, section 4.1, lays them out, and the empty one that ends a file."""
    packed = b""
    for piece in [content[place : place + size] for place in range(0, len(content), size)] + [b""]:
        deflate = zlib.compressobj(wbits=-15)
        body = deflate.compress(piece) + deflate.flush()
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + (len(body) + 25).to_bytes(2, "little")
        packed += head + body + zlib.crc32(piece).to_bytes(4, "little") + len(piece).to_bytes(4, "little")
    return packed


def index(content):
    """What ``samtools faidx`` writes for a file of :func:`fasta` with LF."""
    lines, place = [], 0
    for name, sequence in CONTIGS.items():
        place += len(f">{name} a contig\n")
        lines.append(f"{name}\t{len(sequence)}\t{place}\t60\t61\n")
        place += len(sequence) + -(-len(sequence) // 60)
    assert place == len(content)
    return "".join(lines)


def read(path, bed, strict=False, **options):
    (path.parent / "x.bed").write_text(bed)
    report = Report(strict)
    options = DNAOptions(regions=str(path.parent / "x.bed"), **options)
    return list(DNA(options).read(path, report)), report


@pytest.mark.parametrize(
    "content",
    [
        fasta(),
        fasta(end="\r\n"),
        fasta(width=2000),
        fasta()[:-1],
        b"; a comment\n" + fasta(),
        gzip.compress(fasta()),
        bgzip(fasta()),
        bgzip(fasta(width=2000)),
    ],
    ids=["plain", "CRLF", "one line", "no last line end", "comment", "gzip", "bgzip", "bgzip, one line"],
)
def test_every_stretch_of_every_contig_is_fetched_as_it_stands(tmp_path, content):
    path = tmp_path / "g.fa"
    path.write_bytes(content)
    genome = pickle.loads(pickle.dumps(Genome(path)))
    for name, sequence in CONTIGS.items():
        assert genome.length(name) == len(sequence)
        for start in sorted({0, 1, 5, 59, 60, 61, len(sequence) - 1} & set(range(len(sequence)))):
            for end in sorted({start + 1, start + 60, start + 61, len(sequence)} & set(range(len(sequence) + 1))):
                if end > start:
                    assert genome.fetch(Region(name, start, end)).decode() == sequence[start:end]


def test_an_index_is_used_where_it_fits_and_else_made_anew(tmp_path, monkeypatch):
    path = tmp_path / "g.fa"
    path.write_bytes(fasta())
    index_file = tmp_path / "g.fa.fai"
    for wrong in ("", "chr1\t3\n", index(fasta()).replace("chr1", "chr3"), index(fasta()).replace("\t7\t", "\t5\t")):
        index_file.write_text(wrong)
        assert Genome(path).fetch(Region("e", 0, 7)).decode() == CONTIGS["e"]
    index_file.write_text(index(fasta()))
    monkeypatch.setattr(Genome, "_make_index", lambda self: pytest.fail("the index was not used"))
    assert Genome(path).fetch(Region("chr1", 100, 300)).decode() == CONTIGS["chr1"][100:300]


def test_regions_of_a_bed_file_are_documents_on_their_strand(tmp_path):
    path = tmp_path / "g.fa"
    path.write_bytes(fasta())
    bed = "track name=x\n# note\nchr1\t10\t90\tpeak1\t0\t-\n\nchr2 0 60\nchr1\t10\t20\tpeak1\t0\t.\t1\t2\n"
    documents, report = read(path, bed, n="keep")
    assert [document.id for document in documents] == ["peak1", "chr2:1-60", "peak1#3"]
    assert documents[0].segments == [reverse_complement(CONTIGS["chr1"][10:90].upper())]
    assert documents[0].metadata == {"contig": "chr1", "start": "10", "end": "90", "strand": "-"}
    assert documents[0].source == f"{tmp_path / 'x.bed'}:3"
    assert documents[1].segments == [CONTIGS["chr2"].upper()]
    assert (report.skipped_records, report.notes["names met again and numbered"]) == (0, 1)


def test_regions_that_are_none_are_skipped_by_their_reason(tmp_path):
    path = tmp_path / "g.fa"
    path.write_bytes(fasta() + b">odd\nACGT\nAC\nACGT\n")
    bed = (
        "chr9\t0\t5\nchr2\t50\t61\nchr2\t5\t5\nchr2\tfive\t9\nchr2\nchr2\t0\t9\tn\t0\tx\nodd\t0\t2\nchr2\t-1\t4\n"
        "chr2\t0\t5\n"
    )
    documents, report = read(path, bed)
    assert [document.id for document in documents] == ["chr2:1-5"]
    assert report.skips == {
        "a region that reaches beyond its contig": 1,
        "a region that ends before it begins": 1,
        "a line that is no region: contig, start and end are needed": 3,
        "a region whose strand is none of + - .": 1,
        "a region on a contig with lines of different lengths, blanks or comments: no position is known": 1,
    }
    with pytest.raises(DataError, match=r"x\.bed:2: a region that reaches beyond .*chr2:51-61"):
        read(path, bed, strict=True)


def test_other_formats_damage_and_missing_files_are_named(tmp_path):
    path = tmp_path / "g.fa"
    for content, message in ((b"LOCUS       X 10 bp\n", "no FASTA"), (bgzip(fasta())[:-40], r"g\.fa"), (b"", r"g\.fa")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(path, "chr1\t0\t5\n")
    path.write_bytes(fasta())
    with pytest.raises(DataError, match=r"none\.bed"):
        list(DNA(DNAOptions(regions=str(tmp_path / "none.bed"))).read(path, Report()))
    with pytest.raises(DataError, match=r"none\.fa"):
        DNA(DNAOptions(genome=str(tmp_path / "none.fa"))).canonical("chr1:1-5")


def test_a_place_in_a_table_becomes_its_sequence(tmp_path):
    path = tmp_path / "g.fa"
    path.write_bytes(fasta())
    dna = DNA(DNAOptions(genome=str(path)))
    assert dna.canonical("chr1:101-200") == CONTIGS["chr1"][100:200].upper()
    assert dna.canonical(" chr1:1-1,000(-) ") == reverse_complement(CONTIGS["chr1"].upper())
    assert dna.canonical("chr2:60-60(+)") == CONTIGS["chr2"][59].upper()
    assert DNA(DNAOptions(genome=str(path), alphabet="rna")).canonical("e:1-7(-)") == reverse_complement(
        CONTIGS["e"].upper(), "rna"
    )
    for place in ("chr1:0-5", "chr1:5-4", "chr1:990-1001", "chr7:1-5"):
        with pytest.raises(DataError, match=place.partition(":")[0]):
            dna.canonical(place)
    with pytest.raises(DataError, match="option genome"):
        DNA().canonical("chr1:1,000-2,000(-)")


def test_a_place_is_written_and_read_as_genome_browsers_do():
    region = Region("HLA:01", 999, 2000, "-")
    assert parse_locus("HLA:01:1,000-2,000(-)") == region
    assert parse_locus(region.place) == region
    for text in ("ACGT", "chr1", "chr1:5", "chr1:a-b", "A C:1-2", ""):
        assert parse_locus(text) is None


def test_a_file_that_is_compressed_otherwise_is_copied_once(tmp_path, monkeypatch):
    path, copies = tmp_path / "g.fa.gz", []
    path.write_bytes(gzip.compress(fasta()))
    copy = regions.shutil.copyfileobj
    monkeypatch.setattr(regions.shutil, "copyfileobj", lambda *args: copies.append(1) or copy(*args))
    read(path, "chr1\t0\t5\nchr1\t5\t9\nchr2\t0\t4\n")
    assert copies == [1]
