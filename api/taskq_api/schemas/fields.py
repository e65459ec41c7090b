"""Kinds of fields that bodies share."""

from typing import Annotated

from pydantic import Field

from taskq.calls import TEN_YEARS_MS

SECONDS_MAX = TEN_YEARS_MS // 1000
NAME = r"^[A-Za-z_][A-Za-z0-9._-]{0,127}$"
QUEUE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
KEY = r"^[^{}\x00-\x1f\x7f]{1,200}$"
RATE = r"^[1-9][0-9]{0,6}/[smh]$"
JOB_ID_FORM = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}:[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"
JOB_ID = "default:01K2J7Q0V4T8Z3M6N9R1S5X7YB"

Seconds = Annotated[float | None, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]
Timestamp = Annotated[str | None, Field(json_schema_extra={"format": "date-time"})]
