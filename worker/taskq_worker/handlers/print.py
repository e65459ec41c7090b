"""`print`: write a message to the worker's standard output."""

import json
import sys
from typing import ClassVar, TextIO

from pydantic import BaseModel, ConfigDict, JsonValue

from taskq_worker.handlers._text import one_line
from taskq_worker.handlers.base import JSON, Handler, HandlerContext


class PrintPayload(BaseModel):
    """A string is written as it is, anything else as JSON."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    message: JsonValue


class PrintHandler(Handler[PrintPayload]):
    """Writes the message as one line and returns ``{"printed": message}``.

    `out` is for tests; by default whatever ``sys.stdout`` is when a job runs. Raises OSError when
    that is closed.
    """

    name: ClassVar[str] = "print"
    payload_model = PrintPayload

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    async def run(self, payload: PrintPayload, ctx: HandlerContext) -> JSON:
        message = payload.message
        text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
        out = sys.stdout if self._out is None else self._out
        # One write, so that lines of jobs that print at the same time do not mix.
        out.write(_writable(one_line(text), out.encoding) + "\n")
        out.flush()
        return {"printed": message}


def _writable(text: str, encoding: str | None) -> str:
    """`text` with what the stream cannot encode escaped: a C locale must not fail jobs."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
