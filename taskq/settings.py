"""All settings of taskq: read from ``TASKQ_*`` when asked, never at import.

A flag beats the environment, which beats the default. Secrets are never printed: error messages
leave them out and ``Settings.masked`` hides them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from taskq.errors import ConfigError

__all__ = ["Settings", "load_settings", "mask_url"]

_ENV_PREFIX = "TASKQ_"
_MASK = "***"
_SECRET_FIELDS = frozenset({"redis_url", "api_keys"})  # never shown as they were given
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&#]*(?:password|secret|token)[^=&#]*=)[^&#]*", re.IGNORECASE
)
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
_URL_FORMS = "redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket?db=0"


class Settings(BaseSettings):
    """Every setting with its default; the environment variable is ``TASKQ_`` and the name.

    An empty variable counts as unset. Use ``load_settings`` for errors that a user can read.

    Raises:
        pydantic.ValidationError: a value is wrong; it does not hold the value.
    """

    model_config = SettingsConfigDict(
        env_prefix=_ENV_PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    redis_url: str = Field(
        default="redis://localhost:6379/0",
        description=f"the Redis or Valkey server: {_URL_FORMS}",
    )
    namespace: str = Field(
        default="taskq",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="first part of every key; several installations can share one server",
    )
    lease_seconds: float = Field(
        default=15,
        ge=1,
        le=3600,
        description="seconds without a sign of life until a worker's jobs go to others",
    )
    janitor_seconds: float = Field(
        default=2,
        ge=0.05,
        le=60,
        description="seconds between two rounds of the janitor (expired leases, due jobs); a fifth of a "
        "lease at most",
    )
    grace_seconds: float = Field(
        default=30,
        ge=0,
        le=3600,
        description="seconds that running jobs get to end when a worker is asked to stop",
    )
    start_seconds: float = Field(
        default=3,
        ge=0,
        le=86_400,
        description="seconds that a worker or janitor waits at its start for a server to answer",
    )
    health_file: Path | None = Field(
        default=None,
        description="file that a serving process touches every 5 s, for health checks",
    )
    api_host: str = Field(
        default="127.0.0.1", min_length=1, description="address the API listens on"
    )
    api_port: int = Field(
        default=8000, ge=0, le=65535, description="port of the API; 0 takes a free one"
    )
    api_keys: SecretStr | None = Field(
        default=None, description="keys that clients of the API must show"
    )
    cors_origins: str = Field(
        default="",
        description="origins whose pages may call the API, separated by commas, such as "
        "https://ops.example.com",
    )
    allow_open: bool = Field(
        default=False,
        description="let the API listen on other addresses than loopback without keys",
    )
    max_body_bytes: int = Field(
        default=1_048_576,
        ge=1,
        le=536_870_912,
        description="largest accepted request body, in bytes",
    )
    http_call_allow_private: bool = Field(
        default=False, description="let the built-in http_call reach loopback and private addresses"
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="info", description="least severe level that is logged"
    )
    log_json: bool = Field(default=False, description="log one JSON object a line instead of text")

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, url: str) -> str:
        problem = _redis_url_problem(url)
        if problem is not None:
            raise ValueError(problem)
        return url

    @field_validator("cors_origins")
    @classmethod
    def _check_cors_origins(cls, text: str) -> str:
        for origin in _split(text):
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    "each must be an origin such as https://ops.example.com or http://localhost:3000"
                )
        return text

    @property
    def janitor_period(self) -> float:
        """Seconds between two rounds. A janitor that looks seldom could not be told from a server that was
        away (``reap.lua``: half a lease without a sign of life)."""
        return min(self.janitor_seconds, self.lease_seconds / 5)

    @property
    def origins(self) -> tuple[str, ...]:
        """``cors_origins`` one by one."""
        return tuple(_split(self.cors_origins))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from self.masked().items()

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower_log_level(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level

    def masked(self) -> dict[str, Any]:
        """Return all settings as plain values that are safe to print or log."""
        values = self.model_dump()
        values["redis_url"] = mask_url(self.redis_url)
        values["api_keys"] = None if self.api_keys is None else _MASK
        return values


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def load_settings(**overrides: Any) -> Settings:
    """Return the settings of this process.

    Args:
        overrides: values that beat the environment, such as command-line flags; None means that
            the flag was not given.

    Raises:
        ConfigError: a value is wrong. One line, which names the environment variable of each
            wrong setting and holds no secret.
        TypeError: an override is not the name of a setting.
    """
    unknown = overrides.keys() - Settings.model_fields.keys()
    if unknown:
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        # Without the cause: a traceback of it would hold what was given, secrets too.
        raise ConfigError("; ".join(_describe(item) for item in error.errors())) from None


def mask_url(url: str) -> str:
    """Return ``url`` with its password hidden.

    Errs on the side of hiding: a URL that cannot be told apart loses more than its password.

    >>> mask_url("redis://app:s3cret@db:6379/0")
    'redis://app:***@db:6379/0'
    """
    scheme, separator, rest = (
        url.rpartition("://") if url.count("://") == 1 else url.partition("://")
    )
    if not separator:
        scheme, rest = "", url
    credentials, at, place = rest.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        shown = f"{user}:" if colon and not re.search(r"[/?#@]", user) else ""
        rest = f"{shown}{_MASK}@{place}"
    return _SECRET_PARAMETER.sub(rf"\g<1>{_MASK}", f"{scheme}{separator}{rest}")


def _redis_url_problem(url: str) -> str | None:
    """Return what is wrong with a Redis URL, in words that hold no part of it but the scheme."""
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError:  # of a port that is no number, or of brackets that do not match
        return f"host or port cannot be read; use {_URL_FORMS}"
    match url.partition("://")[0]:  # as it was written: redis-py takes small letters only
        case "redis" | "rediss":
            if not parts.hostname or port_is_wrong:
                return f"host or port is missing; use {_URL_FORMS}"
            # redis-py takes database 0 when it cannot read the number
            if not re.fullmatch(r"/?\d*", parts.path):
                return f"the path must be the number of a database; use {_URL_FORMS}"
        case "unix":
            if not parts.path or parts.path == "/":
                return f"the path of the socket is missing; use {_URL_FORMS}"
        case "redis+sentinel" | "redis+cluster":
            return f"{parts.scheme}:// is not supported yet; use {_URL_FORMS}"
        case _:
            return f"unknown kind of URL; use {_URL_FORMS}"
    return None


def _describe(item: Any) -> str:
    name = str(item["loc"][0]) if item["loc"] else "settings"
    message = str(item["msg"]).removeprefix("Value error, ")
    given = item.get("input")
    shown = "" if name in _SECRET_FIELDS or given is None else f" (not {str(given)[:100]!r})"
    return f"{_ENV_PREFIX}{name.upper()}: {message}{shown}"
