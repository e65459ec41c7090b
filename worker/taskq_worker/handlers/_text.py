"""Text from outside made safe to show: on a terminal, in a log, in an error."""

from collections.abc import Iterable

import httpx

_MIN_SECRET_CHARS = 4


def one_line(text: str) -> str:
    """`text` with everything that is not printable written as a Python escape.

    Newlines, ANSI sequences, bidirectional overrides and lone surrogates cannot get through, so
    job data neither fakes a log line nor controls a terminal. A backslash stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def shown_url(url: httpx.URL) -> str:
    """`url` for messages: user name and password masked, query and fragment left out."""
    user = "***@" if url.userinfo else ""
    query = "?..." if url.query else ""
    path = url.raw_path.partition(b"?")[0].decode("ascii")
    return one_line(f"{url.scheme}://{user}{url.netloc.decode('ascii')}{path}{query}")


def shown_name(name: str) -> str:
    """A host name or another short word from outside, for messages."""
    return one_line(name[:255])


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret of at least four characters replaced by ``***``."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, "***")
    return text
