"""What failures of one kind have in common: the text by which they are grouped.

Two runs failed alike when the same exception came from the same function with the same message, but for
what changes from run to run: numbers, ids, addresses, quoted values. Line numbers stay out, so that a
deployment that moves code does not split a group.
"""

import json
import re
from typing import Any

MAX_SIGNATURE = 300

_FRAME = re.compile(r'^  File "([^"\n]*)", line \d+, in (\S+)', re.MULTILINE)
_VARYING = (
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"'[^'\n]{0,500}'|\"[^\"\n]{0,500}\""), "<text>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{16,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(\.\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def signature(error: bytes) -> tuple[str, bytes]:
    """(signature, the error without its traceback) of an error as it is stored (JSON text).

    What is no object with a ``type`` is of the kind ``unreadable``, kept as it is. Never raises.
    """
    try:
        known: Any = json.loads(error)
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict):
        return "unreadable", error[:1000]
    kind, message = known.get("type"), known.get("message")
    text = kind if isinstance(kind, str) else "error"
    if isinstance(message, str) and message:
        text += f": {_constant(message[:500])}"
    trace = known.get("traceback")
    if isinstance(trace, str) and (frames := _FRAME.findall(trace)):
        path, function = frames[-1]
        name = re.split(r"[/\\]", path)[-1]
        text = f"{text[: MAX_SIGNATURE - 100]} at {name[-60:]}:{function[:60]}"
    brief = {name: value for name, value in known.items() if name != "traceback"}
    return _storable(text[:MAX_SIGNATURE]), json.dumps(brief, ensure_ascii=False).encode(
        errors="replace"
    )


def _constant(message: str) -> str:
    for pattern, word in _VARYING:
        message = pattern.sub(word, message)
    return message.strip()


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
