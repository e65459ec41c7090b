"""Every script that writes, as a call about one job: what the matrix and the breaking tests send."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.queue import LEASE, MINUTE, TYPE, Bench
from taskq import calls
from taskq.calls import Call, Failure, Success
from taskq.model import JobSpec, LeaseRecord
from taskq.states import WAITING

JOB = "job"
"""The id that all of them are about."""

RECORD = LeaseRecord("n1", "q:secret", "w1", "owner", "label", LEASE)


@dataclass(frozen=True)
class Run:
    """Who calls about the job, and under which fence."""

    worker: str
    fence: str


Send = Callable[[Bench, Run], Call[Any]]

FENCED: dict[str, Send] = {
    "finish": lambda b, r: calls.finish(
        b.keys, r.worker, [Success(JOB, r.fence, b'"done"')], now=b.now
    ),
    "fail": lambda b, r: calls.fail(
        b.keys, r.worker, [Failure(JOB, r.fence, b'{"type":"E"}', MINUTE, 3)], now=b.now
    ),
    "crash": lambda b, r: calls.crash(b.keys, r.worker, [(JOB, r.fence, "signal 9")], now=b.now),
    "release": lambda b, r: calls.release(b.keys, r.worker, [(JOB, r.fence)], "stop", now=b.now),
    "snooze": lambda b, r: calls.snooze(b.keys, r.worker, [(JOB, r.fence, MINUTE)], now=b.now),
    "reconcile": lambda b, r: calls.reconcile(b.keys, r.worker, 9, [(JOB, r.fence)], now=b.now),
    "progress": lambda b, r: calls.progress(b.keys, r.worker, [(JOB, r.fence, b"0.5")], now=b.now),
    "log": lambda b, r: calls.log(
        b.keys, r.worker, [(JOB, r.fence, 1, b'{"text":"a"}')], now=b.now
    ),
}
"""Scripts that the holder of a run sends."""

SENDS: dict[str, Send] = {
    **FENCED,
    "enqueue": lambda b, r: calls.enqueue(
        b.keys, [JobSpec(JOB, TYPE, digest="d1", check=True)], now=b.now
    ),
    "enqueue later": lambda b, r: calls.enqueue(
        b.keys, [JobSpec(JOB, TYPE, digest="d2", check=True, delay_ms=MINUTE)], now=b.now
    ),
    "promote": lambda b, r: calls.promote(b.keys, now=b.now),
    "repair": lambda b, r: calls.repair(
        b.keys,
        [calls.Repair("misplaced", JOB), calls.Repair("worker", r.worker)],
        lease_ms=LEASE,
        now=b.now,
    ),
    "claim": lambda b, r: calls.claim(b.keys, "w2", 1, 5, [TYPE], lease_ms=LEASE, now=b.now),
    "claim again": lambda b, r: calls.claim(b.keys, "w1", 1, 5, [TYPE], lease_ms=LEASE, now=b.now),
    "claim nothing": lambda b, r: calls.claim(
        b.keys, "w2", 1, 0, [TYPE], lease_ms=LEASE, now=b.now
    ),
    "fail for good": lambda b, r: calls.fail(
        b.keys, r.worker, [Failure(JOB, r.fence, b'{"type":"E"}', MINUTE, 0)], now=b.now
    ),
    "crash for good": lambda b, r: calls.crash(
        b.keys, r.worker, [(JOB, r.fence, "signal 9")], max_crashes=1, now=b.now
    ),
    "reap": lambda b, r: calls.reap(b.keys, lease_ms=LEASE, now=b.now),
    "reap one": lambda b, r: calls.reap(
        b.keys, lease_ms=LEASE, targets=[("w1", "crashes", "killed")], now=b.now
    ),
    "reap to the end": lambda b, r: calls.reap(
        b.keys, lease_ms=LEASE, targets=[("w1", "crashes", "killed")], max_crashes=1, now=b.now
    ),
    "reconcile nothing held": lambda b, r: calls.reconcile(b.keys, r.worker, 9, [], now=b.now),
    "cancel": lambda b, r: calls.cancel(b.keys, [JOB], now=b.now),
    "retry": lambda b, r: calls.retry(b.keys, [(JOB, "")], now=b.now),
    "retry a run": lambda b, r: calls.retry(b.keys, [(JOB, r.fence)], now=b.now),
    "edit priority": lambda b, r: calls.edit(b.keys, [(JOB, 7, None)], now=b.now),
    "edit to later": lambda b, r: calls.edit(
        b.keys, [(JOB, None, int(b.now) + 9 * MINUTE)], now=b.now
    ),
    "edit to now": lambda b, r: calls.edit(b.keys, [(JOB, 7, int(b.now))], now=b.now),
    "purge": lambda b, r: calls.purge(b.keys, sorted(WAITING), now=b.now),
    "expire": lambda b, r: calls.expire(b.keys, now=b.now),
    "trim": lambda b, r: calls.trim(b.keys, now=b.now),
    "trim all": lambda b, r: calls.trim(b.keys, squeeze=4, now=b.now),
    "delete": lambda b, r: calls.delete(b.keys, [JOB], now=b.now),
    "watch": lambda b, r: calls.watch(b.keys, [JOB], now=b.now),
    "heartbeat": lambda b, r: calls.heartbeat(b.keys, [("w1", LEASE, 0)], now=b.now),
    "configure": lambda b, r: calls.configure(b.keys, {"aging_ms": 5}, now=b.now),
    "lease": lambda b, r: calls.lease(
        b.keys, RECORD, key="k", request="r", keep_ms=MINUTE, now=b.now
    ),
    "settle": lambda b, r: calls.settle(
        b.keys, RECORD.name, "answered", look_at=b.now, keep_ms=MINUTE, now=b.now
    ),
    "overdue": lambda b, r: calls.overdue(b.keys, timeout_ms=MINUTE, now=b.now),
    "listen": lambda b, r: calls.listen(b.keys, MINUTE, now=b.now),
    "rollup": lambda b, r: calls.rollup(b.keys, now=b.now),
    "bulk_start": lambda b, r: calls.bulk_start(b.keys, "b1", {"action": "retry"}, now=b.now),
    "bulk_take": lambda b, r: calls.bulk_take(b.keys, "b1", "r1", lease_ms=LEASE, now=b.now),
    "bulk_step": lambda b, r: calls.bulk_step(
        b.keys,
        "b1",
        fence=1,
        step=1,
        cursor="",
        looked=1,
        matched=1,
        done=1,
        skipped=0,
        last=False,
        lease_ms=LEASE,
        now=b.now,
    ),
    "bulk_stop": lambda b, r: calls.bulk_stop(b.keys, "b1", now=b.now),
}
"""Every script that writes, some of them in more than one way."""
