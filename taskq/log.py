"""How the commands log: one line an event on stderr, as text or as JSON.

Messages hold what clients send (paths, names): nothing of it may begin a line or drive a terminal.
"""

import json
import logging
import sys
import time
from types import TracebackType
from typing import TypeAlias

from taskq.settings import Settings

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def plain(text: str) -> str:
    """``text`` with everything that is not to be seen (control characters among it) as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


class TextFormatter(logging.Formatter):
    """One line an event; only a traceback may have more."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s[%(process)d]: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        return _plain_lines(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _plain_lines(super().formatStack(stack_info))


def _plain_lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging(settings: Settings) -> None:
    """Sets up the root logger of this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_json else TextFormatter())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
