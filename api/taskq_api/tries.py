"""Wrong keys, counted by the address that sends them, so that none is guessed by trying."""

import ipaddress
import time
from collections import OrderedDict

TRIES = 20
"""Wrong keys at once, and then one every ``PAUSE_SECONDS``."""
PAUSE_SECONDS = 3.0
MAX_PEERS = 10_000


class FailedTries:
    """Buckets that empty evenly, of the addresses that failed last; about 2 MB at most."""

    def __init__(self, *, max_peers: int = MAX_PEERS) -> None:
        self._max = max_peers
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def wait_for(self, peer: str) -> float:
        """Seconds until an address may try again; 0: now."""
        empty_at = self._empty_at.get(peer)
        if empty_at is None:
            return 0.0
        return max(0.0, empty_at - time.monotonic() - (TRIES - 1) * PAUSE_SECONDS)

    def note(self, peer: str) -> None:
        """Another wrong key from an address."""
        now = time.monotonic()
        empty_at = max(self._empty_at.pop(peer, now), now) + PAUSE_SECONDS
        self._empty_at[peer] = empty_at
        if len(self._empty_at) > self._max:
            self._empty_at.popitem(last=False)


def peer_of(client: tuple[str, int] | None) -> str:
    """What is counted as one sender: an IPv4 address, or the /64 that one IPv6 host has to itself."""
    if client is None:  # a unix socket
        return ""
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.version == 4:
        return str(mapped)
    return str(ipaddress.ip_network((int(mapped), 64), strict=False))
