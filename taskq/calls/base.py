"""What all calls share: their form, and what is checked before anything is sent."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from taskq import lua
from taskq.errors import InvalidInput
from taskq.keys import QueueKeys

T = TypeVar("T")
Arg = bytes | str | int | float

TEN_YEARS_MS = 315_360_000_000


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call: ``args`` follow the single key ``prefix``; ``parse`` turns the reply into values.

    ``again`` makes the call to send when this one's answer was lost, where that is not the same one.
    """

    script: lua.Script
    prefix: str
    args: Sequence[Arg]
    parse: Callable[[Any], T]
    again: Callable[[], "Call[T]"] | None = None


def _now(now: float | None) -> str:
    """Only tests pass a time; '' makes the script read the server's clock."""
    return "" if now is None else repr(float(now))


def text_of(value: Any) -> str:
    """A word or name of an answer; bytes that are no text are shown escaped."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def words(reply: Any) -> list[str]:
    """One word per item, without its details."""
    return [text_of(word[0] if isinstance(word, list) else word) for word in reply]


def make(
    name: str,
    keys: QueueKeys,
    now: float | None,
    fixed: Iterable[Arg],
    items: Iterable[Arg],
    parse: Callable[[Any], T],
    again: Callable[[], Call[T]] | None = None,
) -> Call[T]:
    """The call of the script ``name``: its fixed arguments, then those of the items."""
    return Call(lua.load(name), keys.prefix, [_now(now), *fixed, *items], parse, again)


_WORKER = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")
_WORD = re.compile(r"[ !#-\[\]-~]{1,200}\Z")


def check_worker(worker: object) -> str:
    """A worker's id, which the scripts write into JSON: 1 to 200 letters, digits, ``. _ : -``.

    Raises ``InvalidInput``.
    """
    if not isinstance(worker, str) or not _WORKER.match(worker):
        raise InvalidInput(
            f"worker {ascii(worker)[:60]} is no id: 1 to 200 letters, digits, '.', '_', ':' or '-'",
            field="worker",
        )
    return worker


def check_word(text: object, field: str) -> str:
    """Words of ours, which the scripts write into JSON: printable ASCII, no double quote or backslash.

    Raises ``InvalidInput``.
    """
    if not isinstance(text, str) or not _WORD.match(text):
        raise InvalidInput(
            f"{field} {ascii(text)[:60]} must be 1 to 200 printable ASCII characters "
            "without double quotes and backslashes",
            field=field,
        )
    return text


def delay_to_ms(seconds: float, field: str) -> int:
    """Seconds given by a user as whole milliseconds. Raises ``InvalidInput`` for NaN, negative, bool."""
    number: object = seconds
    if (
        isinstance(number, bool)
        or not isinstance(number, (int, float))
        or not math.isfinite(number)
    ):
        raise InvalidInput(f"{field} must be a number of seconds, not {seconds!r}", field=field)
    if seconds < 0 or seconds * 1000 > TEN_YEARS_MS:
        raise InvalidInput(
            f"{field} must be 0 to {TEN_YEARS_MS // 1000} seconds, not {seconds!r}", field=field
        )
    return math.ceil(seconds * 1000)


def optional_int(value: Any) -> int | None:
    """A number of an answer, where '' stands for none."""
    return int(value) if value else None
