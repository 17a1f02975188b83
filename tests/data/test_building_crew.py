import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from brittle import Brittle
from letters import Letters, write_documents
from tokenizers import Tokenizer, models

from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.corpus import Corpus
from seqbert.errors import DataError, DomainError

BRITTLE = Path(sys.modules[Brittle.__module__].__file__ or "")
METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(7):
        write_documents(folder / f"{number}.letters", documents=5 + 3 * number, seed=number)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class ThreadCrew:
    """Threads in place of the processes of a job; an error of one breaks the waits of the others."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, board: list[str]) -> None:
        self.rank, self.size, self._barrier, self._board = rank, size, barrier, board

    def wait(self) -> None:
        self._barrier.wait(timeout=60)

    def tell(self, text: str) -> str:
        if self.rank == 0:
            self._board[0] = text
        self.wait()
        told = self._board[0]
        self.wait()
        return told


def build_together(size: int, cache: Path, request: dict[str, object], domain: type[Letters] = Letters) -> list[object]:
    """What each rank comes to: the corpus, or the error."""
    barrier, board = threading.Barrier(size), [""]
    outcomes: list[object] = [None] * size

    def work(rank: int) -> None:
        try:
            crew = ThreadCrew(rank, size, barrier, board)
            outcomes[rank] = build_corpus(BuildRequest(domain(), **request), cache, crew=crew)  # type: ignore[arg-type]
        except Exception as error:
            outcomes[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.parametrize("held_out", [0.1, "3.letters"])
def test_a_corpus_has_the_same_bytes_for_any_number_of_ranks(
    files: Path, tmp_path: Path, held_out: float | str
) -> None:
    validation = str(files / held_out) if isinstance(held_out, str) else held_out
    request = {"data": ["sample", str(files)], "validation": validation}
    alone = build_corpus(BuildRequest(Letters(), **request), tmp_path / "alone")  # type: ignore[arg-type]
    assert alone.report["records"]["in"] == 1 + sum(5 + 3 * number for number in range(7))
    for size in (1, 2, 3):
        outcomes = build_together(size, tmp_path / str(size), request)
        assert [type(outcome) for outcome in outcomes] == [Corpus] * size, outcomes
        assert {outcome.folder.name for outcome in outcomes} == {alone.folder.name}  # type: ignore[attr-defined]
        assert contents(tmp_path / str(size)) == contents(tmp_path / "alone")


def test_ranks_that_find_a_corpus_build_none(files: Path, tmp_path: Path) -> None:
    first = build_together(2, tmp_path / "cache", {"data": [str(files)]})
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    again = build_together(2, tmp_path / "cache", {"data": [str(files)]})
    assert {corpus.folder for corpus in first + again} == {first[0].folder}  # type: ignore[attr-defined]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == before


def test_an_error_on_one_rank_ends_the_others_and_leaves_no_draft(files: Path, tmp_path: Path) -> None:
    (files / "1.letters").write_text("abc\n\njjj")  # the second group is rank 1's
    outcomes = build_together(2, tmp_path / "cache", {"data": [str(files)]}, Brittle)
    assert isinstance(outcomes[0], threading.BrokenBarrierError)
    assert isinstance(outcomes[1], DataError) and "ZeroDivisionError" in str(outcomes[1])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_rank_that_loses_the_draft_refers_to_the_first_one(files: Path, tmp_path: Path) -> None:
    class Removing(Letters):
        def read(self, path, report):  # type: ignore[no-untyped-def]
            if path.stem == "1":  # rank 1's
                shutil.rmtree(next((tmp_path / "cache").glob(".letters-*")))
            return super().read(path, report)

    outcomes = build_together(2, tmp_path / "cache", {"data": [str(files)]}, Removing)
    assert isinstance(outcomes[1], DataError) and "Process 0 has given up and removed" in str(outcomes[1])


def test_a_rank_that_does_not_see_the_folder_of_the_first_says_so(tmp_path: Path) -> None:
    class Elsewhere(ThreadCrew):
        def tell(self, text: str) -> str:
            return str(tmp_path / "elsewhere")

    crew = Elsewhere(1, 2, threading.Barrier(1), [])
    with pytest.raises(DataError, match="Process 1 of 2 does not see .*elsewhere.* all machines share"):
        build_corpus(BuildRequest(Letters(), ["sample"]), tmp_path, crew=crew)


# Processes of another program: prepared by tests/support/brittle.py


def start(files: Path, cache: Path, method: str = "fork", file_size: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, BRITTLE, files, cache, method, str(file_size or "")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_row77_a_corpus_has_the_same_bytes_under_each_start_method(files: Path, tmp_path: Path) -> None:
    running = [start(files, tmp_path / method, method) for method in METHODS]
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0 and not error
    assert contents(tmp_path / "fork") == contents(tmp_path / "spawn") == contents(tmp_path / "forkserver") != {}


def test_row77_a_script_without_a_guarded_entry_point_is_told_to_have_one(files: Path, tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import multiprocessing, sys\n"
        f"sys.path.insert(0, {str(BRITTLE.parent)!r})\n"
        "from pathlib import Path\n"
        "from brittle import Brittle, BuildRequest, build_corpus\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        f"build_corpus(BuildRequest(Brittle(), [{str(files)!r}]), Path({str(tmp_path / 'cache')!r}), 2)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and '"spawn" has to do so below `if __name__ == "__main__":`' in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_a_process_that_is_killed_and_the_next_build_removes_its_draft(
    files: Path, tmp_path: Path, method: str
) -> None:
    (files / "2.letters").write_text("cede\n\nabc")
    process = start(files, tmp_path / "cache", method)
    wait_for(files / "2.letters.begun", process)
    process.kill()
    process.communicate(timeout=20)  # returns when no worker holds the pipes any more
    (left,) = (tmp_path / "cache").iterdir()
    assert left.name.startswith(".")
    corpus = build_corpus(BuildRequest(Letters(), [str(files)]), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == [corpus.folder]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_job_leaves_no_worker_no_draft_and_no_traceback(
    files: Path, tmp_path: Path, number: int
) -> None:
    (files / "2.letters").write_text("cede\n\nabc")
    process = start(files, tmp_path / "cache")
    wait_for(files / "2.letters.begun", process)
    os.killpg(process.pid, number)
    assert process.communicate(timeout=20) == ("", "") and process.returncode == 7
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_draft_that_another_process_fills_is_left_alone(files: Path, tmp_path: Path) -> None:
    (files / "2.letters").write_text("cede\n\nabc")
    process = start(files, tmp_path / "cache")
    wait_for(files / "2.letters.begun", process)
    try:
        corpus = build_corpus(BuildRequest(Letters(), ["sample"]), tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == 2 and corpus.folder.is_dir()
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.mark.parametrize(("hours", "stays"), [(1, True), (30, False)])
def test_a_draft_of_another_machine_is_removed_after_a_day(tmp_path: Path, hours: float, stays: bool) -> None:
    draft = tmp_path / "cache" / ".letters-0123456789abcdef.01234567"
    (draft / ".building").mkdir(parents=True)
    (draft / ".building" / "lock").write_text(f"not-{socket.gethostname()}")
    for path in (draft / ".building" / "lock", draft / ".building", draft):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    build_corpus(BuildRequest(Letters(), ["sample"]), tmp_path / "cache")
    assert draft.exists() == stays


def test_a_ruin_in_the_place_of_a_corpus_is_replaced(files: Path, tmp_path: Path) -> None:
    first = build_corpus(BuildRequest(Letters(), [str(files)]), tmp_path / "cache")
    whole = contents(first.folder)
    (first.folder / "manifest.json").unlink()
    assert contents(build_corpus(BuildRequest(Letters(), [str(files)]), tmp_path / "cache").folder) == whole


# Plugins that fail


@pytest.fixture
def brittle_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRITTLE", "everywhere")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_plugin_that_fails_while_reading_is_named_with_the_file_and_the_record_before(
    files: Path, tmp_path: Path, processes: int, brittle_everywhere: None
) -> None:
    (files / "2.letters").write_text("abc\n\nbad\n\nabc")
    with pytest.raises(DataError, match='plugin of the domain "letters" failed.*KeyError') as caught:
        build_corpus(BuildRequest(Brittle(), [str(files)]), tmp_path / "cache", processes)
    assert f'"{files}/2.letters" after the record "{files}/2.letters:1"' in str(caught.value)
    assert "raise KeyError" in str(caught.value.__cause__) or isinstance(caught.value.__cause__, KeyError)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_plugin_that_fails_while_its_tokenizer_is_made_is_named_with_the_record(
    files: Path, tmp_path: Path, brittle_everywhere: None
) -> None:
    class Learning(Brittle):
        def tokenizer(self, segments, vocab_size):  # type: ignore[no-untyped-def]
            tokenizer = super().tokenizer(segments, vocab_size)
            tokenizer.train_from_iterator(segments)
            return tokenizer

    (files / "2.letters").write_text("bad\n\nabc")
    with pytest.raises(DataError, match=r"2\.letters:0.*KeyError"):
        build_corpus(BuildRequest(Learning(), [str(files)]), tmp_path / "cache")


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("record", "fault"), [("jjj", "ZeroDivisionError"), ("iii", "the vocabulary has 15 tokens")])
def test_a_plugin_that_fails_while_encoding_is_named_with_the_record(
    files: Path, tmp_path: Path, processes: int, record: str, fault: str
) -> None:
    (files / "2.letters").write_text(f"abc\n\nabd\n\n{record}\n\nabe")
    with pytest.raises(DataError, match=rf'encoding the record "{files}/2.letters:2".*{fault}.*fault is the plugin'):
        build_corpus(BuildRequest(Brittle(), [str(files)]), tmp_path / "cache", processes)


def test_a_plugin_whose_tokenizer_lacks_the_special_tokens_is_named(files: Path, tmp_path: Path) -> None:
    class Bare(Letters):
        def tokenizer(self, segments, vocab_size):  # type: ignore[no-untyped-def]
            return Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))

    with pytest.raises(DomainError, match=r"does not begin with \[PAD\]"):
        build_corpus(BuildRequest(Bare(), [str(files)]), tmp_path / "cache")


def test_a_worker_that_is_killed_is_reported_with_the_file_and_the_record(files: Path, tmp_path: Path) -> None:
    (files / "2.letters").write_text("abc\n\nabd\n\ndie\n\nabe")
    with pytest.raises(DataError, match="ended by SIGKILL") as caught:
        build_corpus(BuildRequest(Brittle(), [str(files)]), tmp_path / "cache", processes=2)
    assert f'reading "{files}/2.letters" after the record "{files}/2.letters:2"' in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


# Disks


@pytest.mark.parametrize("limit", [300, 3_000, 6_000])
def test_a_disk_that_takes_no_more_is_named_and_no_half_corpus_is_left(files: Path, tmp_path: Path, limit: int) -> None:
    process = start(files, tmp_path / "cache", file_size=limit)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.startswith(f'The corpus cannot be written to "{tmp_path / "cache"}": File too large. Make room there')
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"), [("size=24k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_full_or_read_only_disk_is_named_and_nothing_is_left(
    files: Path, tmp_path: Path, options: str, reason: str
) -> None:
    cache = tmp_path / "disk"
    cache.mkdir()
    mount = f"mount -t tmpfs -o {options} tmpfs {cache}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    prepare = f"'{sys.executable}' '{BRITTLE}' '{files}' '{cache}' fork ''; ls -A '{cache}'"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", f"{mount} && {prepare}"], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.stderr.startswith(f'The corpus cannot be written to "{cache}": {reason}. Make room there')


def test_a_file_whose_name_is_not_utf8_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.letters"))
    write_documents(path, documents=30)
    (folder / "x.letters").write_text("a\0b")
    corpus = build_corpus(BuildRequest(Letters(), [str(folder)]), tmp_path / "cache", processes=2)
    assert corpus.report["records"]["in"] == 30
