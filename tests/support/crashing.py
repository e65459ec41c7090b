"""Processes that are killed around one of their Redis commands, wherever it is.

``python -m support.crashing URL`` reads one JSON order a line, forks, and the child carries out the
transition through a ``Store`` (or a janitor's round) until its k-th command: it is killed before that is
sent, after it is sent, or after it is answered. The answer says whether it got that far.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import redis.asyncio.connection
import redis.connection

import taskq.wire
from taskq import calls
from taskq.calls import Failure, Success
from taskq.janitor import Janitor
from taskq.keys import Keys
from taskq.model import JobSpec
from taskq.store import AsyncStore, Store

QUEUE = "q"
TYPE = "work"
LEASE_MS = 15_000
MODES = ("before", "sent", "answered")


class Crasher:
    """Orders crashes of a process that has the library loaded already."""

    def __init__(self, url: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
            ),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.crashing", url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def crash(self, transition: str, k: int, mode: str, **arguments: Any) -> bool:
        """Whether the process was killed at its k-th command; False when it was done before."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        order = {"do": transition, "k": k, "mode": mode, **arguments}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        assert answer in ("killed", "done"), f"{order}: {answer}"
        return answer == "killed"

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(10)


# --- in the process -------------------------------------------------------------------------------


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(k: int, mode: str) -> None:
    """Counts what is sent on any connection of this process."""
    sent = [0]

    def sync_send(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        sent[0] += 1
        if sent[0] == k and mode == "before":
            _die()
        plain_send(self, command, *args, **kwargs)
        if sent[0] == k and mode == "sent":
            _die()

    def sync_read(self: Any, *args: Any, **kwargs: Any) -> Any:
        reply = plain_read(self, *args, **kwargs)
        if sent[0] >= k and mode == "answered":
            _die()
        return reply

    # Below redis-py, where the bytes of one command, or of some that go out in one piece, leave.
    def sending(plain: Any) -> Any:
        def send(self: Any, *args: Any) -> Any:
            sent[0] += 1
            if sent[0] == k and mode == "before":
                _die()
            owed = plain(self, *args)
            if sent[0] == k and mode == "sent":
                _die()
            return owed

        return send

    def wire_read(self: Any, data: bytes) -> None:
        plain_wire_read(self, data)
        if sent[0] >= k and mode == "answered":
            _die()

    async def async_read(self: Any, *args: Any, **kwargs: Any) -> Any:
        reply = await plain_async_read(self, *args, **kwargs)
        if sent[0] >= k and mode == "answered":
            _die()
        return reply

    sync: Any = redis.connection.AbstractConnection
    plain_send, plain_read = sync.send_packed_command, sync.read_response
    sync.send_packed_command, sync.read_response = sync_send, sync_read
    other: Any = redis.asyncio.connection.AbstractConnection
    plain_async_read, other.read_response = other.read_response, async_read
    writer: Any = asyncio.StreamWriter
    writer.writelines = sending(writer.writelines)
    line: Any = taskq.wire._Line
    line.ask = sending(line.ask)
    plain_wire_read, line.data_received = line.data_received, wire_read


def _do(url: str, order: dict[str, Any]) -> None:
    if order["do"] == "janitor":
        asyncio.run(_janitor(url))
        return
    store = Store.from_url(url, Keys())
    keys = store.keys.queue(QUEUE)
    runs = [tuple(run) for run in order.get("runs", [])]
    match order["do"]:
        case "enqueue":
            store.know_queue(QUEUE)
            store.run(
                calls.enqueue(keys, [JobSpec(i, TYPE, b"{}", check=True) for i in order["ids"]])
            )
        case "claim":
            store.run(calls.claim(keys, "w", order["call"], 5, [TYPE], lease_ms=LEASE_MS))
        case "finish":
            store.run(calls.finish(keys, "w", [Success(*run, b"1") for run in runs]))
        case "fail":
            store.run(calls.fail(keys, "w", [Failure(*run, b'{"type":"E"}', 0, 3) for run in runs]))
        case "fail for good":
            store.run(calls.fail(keys, "w", [Failure(*run, b'{"type":"E"}', 0, 0) for run in runs]))
        case "release":
            store.run(calls.release(keys, "w", runs, "stop"))
        case "snooze":
            store.run(calls.snooze(keys, "w", [(*run, 1) for run in runs]))
        case "crash":
            store.run(calls.crash(keys, "w", [(*run, "signal 9") for run in runs]))
        case "reconcile":
            store.run(calls.reconcile(keys, "w", order["call"], []))
        case "heartbeat":
            store.run(calls.heartbeat(keys, [("w", LEASE_MS, len(runs))]))
        case "bury":
            store.run(
                calls.reap(keys, lease_ms=LEASE_MS, limit=2, targets=[("w", "crashes", "signal 9")])
            )
            store.run(
                calls.reap(keys, lease_ms=LEASE_MS, limit=2, targets=[("w", "crashes", "signal 9")])
            )
        case "cancel":
            store.run(calls.cancel(keys, order["ids"]))
        case "retry":
            store.run(calls.retry(keys, [(i, "") for i in order["ids"]]))
        case "purge":
            store.run(calls.purge(keys, ["queued", "scheduled", "retrying"]))
        case other:
            raise AssertionError(other)


async def _janitor(url: str) -> None:
    store = AsyncStore.from_url(url, Keys())
    janitor = Janitor(store, every_seconds=1, lease_seconds=LEASE_MS / 1000)
    janitor.serve(QUEUE)
    await janitor.round()
    await store.close()


def main() -> None:
    url = sys.argv[1]
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _arm(order["k"], order["mode"])
            _do(url, order)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        done = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        print("killed" if killed else "done" if done else f"status {status}", flush=True)


if __name__ == "__main__":
    main()
