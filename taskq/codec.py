"""JSON that every language reads alike, or a clear refusal.

Payloads and results travel as UTF-8 JSON text and pass Redis and Lua untouched. Refused here, before
anything is stored: NaN and Infinity (no JSON), lone surrogates (no UTF-8), integers of more than 4,300
digits, nesting deeper than 200 (readers' recursion limits differ), text over the size limit.
Integers stay exact at any size; ``[]`` and ``{}`` stay what they are.
"""

import dataclasses
import datetime
import decimal
import enum
import hashlib
import ipaddress
import json
import math
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from taskq.errors import InvalidPayload, PayloadTooLarge

MAX_DEPTH = 200
MAX_BYTES = 1_048_576


def dumps(
    value: Any,
    *,
    what: str = "payload",
    max_bytes: int = MAX_BYTES,
    default: Callable[[Any], Any] | None = None,
) -> bytes:
    """``value`` as compact UTF-8 JSON.

    ``what`` names the value in errors; ``default`` turns what JSON does not know into what it does.
    Raises ``InvalidPayload`` (not JSON, NaN, surrogates, too deep) or ``PayloadTooLarge``.
    """
    try:
        text = (_encoder(default) if default else _ENCODER).encode(value)
        data = text.encode()
    except RecursionError:
        raise InvalidPayload(
            f"{what} is nested too deeply or contains itself", field=what
        ) from None
    except UnicodeEncodeError:
        raise InvalidPayload(
            f"{what} holds a lone surrogate, which is not text", field=what
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidPayload(f"{what} is not JSON: {_reason(error)}", field=what) from None
    _check_size(len(data), what, max_bytes)
    # Depth can only pass the limit if there are more than that many brackets.
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text, what)
    return data


def loads(data: bytes | str, *, what: str = "payload", max_bytes: int = MAX_BYTES) -> Any:
    """The value of strict JSON text; raises like ``dumps``."""
    try:
        raw = data.encode() if isinstance(data, str) else data
        _check_size(len(raw), what, max_bytes)
        text = raw.decode()
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(text, what)
        value = _DECODER.decode(text)
        # By now a lone surrogate can only come from an escape.
        if _SURROGATE_ESCAPE.search(text):
            _ENCODER.encode(value).encode()
    except UnicodeDecodeError:
        raise InvalidPayload(f"{what} is not UTF-8", field=what) from None
    except UnicodeEncodeError:
        raise InvalidPayload(
            f"{what} holds a lone surrogate, which is not text", field=what
        ) from None
    except RecursionError:
        raise InvalidPayload(f"{what} is nested too deeply", field=what) from None
    except ValueError as error:
        raise InvalidPayload(f"{what} is not JSON: {_reason(error)}", field=what) from None
    return value


def plain(value: Any) -> Any:
    """``default`` for values that Python code passes: models, dataclasses, enums, times, sets and the like.

    What merely can be iterated (an open file, a generator) is not taken for a list.
    Raises ``TypeError``, ``ValueError``.
    """
    if isinstance(value, _PLAIN_TYPES) or dataclasses.is_dataclass(value):
        return to_jsonable_python(value, fallback=_path)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _path(value: Any) -> str:
    """Pure paths, which pydantic does not know."""
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def digest(*parts: bytes) -> str:
    """A short fingerprint of a submission, to tell a repeat from another use of its key."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.hexdigest()[:32]


def _check_size(size: int, what: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise PayloadTooLarge(f"{what} is {size} bytes, the limit is {max_bytes}", field=what)


def _check_depth(text: str, what: str) -> None:
    """Counts brackets outside strings: linear, and without recursion."""
    depth, in_string, escaped = 0, False, False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidPayload(f"{what} is nested deeper than {MAX_DEPTH}", field=what)
        elif char in "]}":
            depth -= 1


def _reason(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 200 else text[:197] + "..."


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of the range of a double")
    return value


_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


_PLAIN_TYPES = (
    BaseModel,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    enum.Enum,
    frozenset,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    pathlib.PurePath,
    set,
    uuid.UUID,
)


def _encoder(default: Callable[[Any], Any] | None) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


_ENCODER = _encoder(None)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
