"""A plugin with faults: what its records say is what goes wrong. As a program it prepares a corpus of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from letters import Letters

from seqbert.data.building import BuildRequest, build_corpus
from seqbert.domain import Document, Encoded, Report
from seqbert.errors import SeqbertError


class Brittle(Letters):
    """Fails after a record that is a word for how: bad, die, cede (wait). Encoding fails on jjj, errs on iii."""

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        # Most tests run this process too, which must not die.
        working = multiprocessing.parent_process() is not None or os.environ.get("BRITTLE") == "everywhere"
        for document in super().read(path, report):
            yield document
            match document.segments[0] if working else "":
                case "bad":
                    raise KeyError("x")
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "cede":
                    Path(f"{path}.begun").touch()
                    time.sleep(60)

    def encode(self, texts, offsets=True):  # type: ignore[no-untyped-def]
        if any(text == "jjj" for text in texts):
            raise ZeroDivisionError("a fault of the plugin")
        encoded: Encoded = super().encode(texts, offsets=offsets)
        if any(text == "iii" for text in texts):
            encoded.ids[0] = 400
        return encoded


class Stop(BaseException):
    """As a handler of signals raises it."""


def stop(number: int, frame: object) -> None:
    raise Stop


def main(folder: str, cache: str, start_method: str, file_size: str) -> None:
    """Prepares the files of a folder with two workers; a limit on the size of files stands for a full disk."""
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    multiprocessing.set_start_method(start_method)
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_size), int(file_size)))
    try:
        corpus = build_corpus(BuildRequest(Brittle(), [folder]), Path(cache), processes=2)
        print(json.dumps({"folder": str(corpus.folder)}))
    except Stop:
        sys.exit(7)
    except SeqbertError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
