"""A task's result as JSON text."""

from dataclasses import dataclass
from typing import Any

from taskq import codec


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result that is JSON text already: it comes from a process of its own."""

    data: bytes


def encode_result(value: Any) -> bytes:
    """Raises ``InvalidPayload`` or ``PayloadTooLarge``."""
    if isinstance(value, EncodedResult):
        return value.data
    return b"null" if value is None else codec.dumps(value, what="result", default=codec.plain)
