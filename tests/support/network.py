"""Several hosts on one machine: network namespaces with addresses of their own, on a bridge.

A cut takes the host's cable out of the bridge: frames are dropped both ways, no interface goes down and no
end of a connection is seen, as when a switch dies. Needs root and ``ip`` on Linux.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_numbers = itertools.count()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def why_not() -> str | None:
    """Why there can be no such hosts here; None when there can."""
    if shutil.which("ip") is None:
        return "needs the command `ip` (package iproute2)"
    name = f"tq-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except (subprocess.SubprocessError, OSError) as error:
        return f"cannot make a network namespace here: {error}"
    return None


class Host:
    """A host on the network; what ``prefix`` is put before runs there."""

    def __init__(self, bridge: str, name: str, cable: str, address: str) -> None:
        self._bridge = bridge
        self._name = name
        self._cable = cable
        self.address = address
        self.prefix = ("ip", "netns", "exec", name)
        _ip("netns", "add", name)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "set", cable, "master", bridge, "up")

    def cut(self) -> None:
        _ip("link", "set", self._cable, "nomaster")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "master", self._bridge)

    def close(self) -> None:
        for words in (("link", "delete", self._cable), ("netns", "delete", self._name)):
            with contextlib.suppress(subprocess.SubprocessError):
                _ip(*words)


class Network:
    """A bridge with the machine itself at ``address``."""

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._prefix = f"10.{128 + os.getpid() % 120}.{self._number}"
        self._bridge = f"tq{os.getpid()}b{self._number}"
        self._hosts: list[Host] = []
        self.address = f"{self._prefix}.1"
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def host(self) -> Host:
        n = len(self._hosts) + 2
        label = f"{os.getpid()}{chr(ord('a') + self._number % 26)}{n}"
        host = Host(self._bridge, f"tq-{label}", f"tqv{label}", f"{self._prefix}.{n}")
        self._hosts.append(host)
        return host

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        with contextlib.suppress(subprocess.SubprocessError):
            _ip("link", "delete", self._bridge)


@contextmanager
def network() -> Iterator[Network]:
    net = Network()
    try:
        yield net
    finally:
        net.close()
