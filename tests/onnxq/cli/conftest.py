"""Every document that a test of the command line makes is held against its schema."""

from __future__ import annotations

import json

import pytest

from tests.checks.documents import faults
from tests.onnxq.conftest import Run


@pytest.fixture
def onnxq(onnxq: Run) -> Run:
    """Run a command; exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        code, out, err = onnxq(*words)
        if "--json" in words and out:
            document = json.loads(out)
            failed = isinstance(document, dict) and document.keys() == {"error", "next"}
            merge = words[:2] == ("calibrate", "merge")
            command = "calibrate merge" if merge else str(words[0])
            assert not faults("error" if failed else command, document)
        return code, out, err

    return run
