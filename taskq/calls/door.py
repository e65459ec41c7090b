"""What the API asks before it lets a request in."""

from taskq import lua
from taskq.calls.base import Call


def throttle(
    bucket: str, requests: int, period_ms: int, *, now: float | None = None
) -> Call[float]:
    """Takes one request from a rate: seconds until the next one is allowed, 0 if this one is.

    Not to be sent again: each call is a request.
    """
    args = ("" if now is None else repr(float(now)), requests, period_ms)
    return Call(lua.load("throttle"), bucket, args, lambda ms: int(ms) / 1000)
