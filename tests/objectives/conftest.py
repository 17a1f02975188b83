from pathlib import Path

import pytest
from letters import build, write_documents

from seqbert.data.corpus import Corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", documents=300)
    return build(folder)
