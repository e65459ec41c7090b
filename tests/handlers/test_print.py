"""``print``: one harmless line."""

import io
from typing import Any

import pytest

from support.web import Context
from taskq_worker.handlers import PayloadInvalid
from taskq_worker.handlers.print import PrintHandler

# --- print ---------------------------------------------------------------------------------------


async def printed(message: Any) -> str:
    out = io.StringIO()
    handler = PrintHandler(out)
    result = await handler.run(handler.parse({"message": message}), Context())
    assert result == {"printed": message}
    return out.getvalue()


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("hello, wörld ✓", "hello, wörld ✓"),
        ("", ""),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        (2**80, str(2**80)),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\r\x08\x9b31m\u2028\u202e\ud800", "\\r\\x08\\x9b31m\\u2028\\u202e\\ud800"),
        ({"\x1b\u202e": "\n"}, '{"\\u001b\\u202e": "\\n"}'),
    ],
)
async def test_print_writes_one_harmless_line(message: Any, line: str) -> None:
    """F83: control signs do not reach the terminal."""
    assert await printed(message) == line + "\n"


async def test_print_uses_the_stdout_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    await PrintHandler().run(PrintHandler.parse({"message": "seen"}), Context())
    assert capsys.readouterr().out == "seen\n"


async def test_print_survives_an_ascii_stdout() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    await PrintHandler(out).run(PrintHandler.parse({"message": "é✓"}), Context())
    assert raw.getvalue() == b"\\xe9\\u2713\n"


@pytest.mark.parametrize("payload", [{}, {"message": 1, "more": 2}, [], None, "x"])
def test_print_payload_is_checked(payload: Any) -> None:
    with pytest.raises(PayloadInvalid):
        PrintHandler.parse(payload)
