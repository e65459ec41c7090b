"""One line an event, whatever is in it."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from taskq.log import configure_logging
from taskq.settings import load_settings


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets up logging and answers what was written so far."""
    out = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()  # or pytest's own would be closed

    def start(**settings: Any) -> Any:
        monkeypatch.setattr("sys.stderr", out)
        configure_logging(load_settings(**settings))
        return out.getvalue

    yield start
    root.handlers[:] = before
    root.setLevel(level)


def test_a_message_cannot_forge_a_line(logged: Any) -> None:
    written = logged()
    path = "/x\n2026-01-01 00:00:00,000 ERROR   taskq[1]: all jobs lost\x1b[2J\u202e\r\x85ä"
    logging.getLogger("taskq.api").error("GET %s failed", path)
    (line,) = written().splitlines()
    assert r"/x\n2026-01-01" in line
    assert line.endswith("all jobs lost\\x1b[2J\\u202e\\r\\x85ä failed")


def test_a_traceback_has_its_lines_and_nothing_else(logged: Any) -> None:
    written = logged()
    try:
        raise ValueError("no\x1b[31m\x9b")
    except ValueError:
        logging.getLogger("taskq").exception("failed\n")
    lines = written().split("\n")
    assert lines[0].endswith("failed\\n")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-2] == "ValueError: no\\x1b[31m\\x9b"


def test_json_is_one_document_a_line(logged: Any) -> None:
    written = logged(log_json=True)
    logging.getLogger("taskq").warning("a\nb\x1b\u2028\udc80")
    (line,) = written().split("\n")[:-1]
    assert json.loads(line)["message"] == "a\nb\x1b\u2028\udc80"
    assert re.fullmatch(r"[ -~]+", line)
