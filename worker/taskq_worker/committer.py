"""Reports how runs ended: what gathers while one call is under way goes out with the next (group commit).

A result stays here until Redis has acknowledged it, however long Redis is away; if the fence still stands
then, it counts.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from taskq import calls
from taskq.calls import Call, Failure, Success
from taskq.errors import Unavailable
from taskq.store import AsyncStore, retry_delay
from taskq_worker.failures import understand
from taskq_worker.reporter import Reporter
from taskq_worker.runs import Crashed, Dropped, Failed, Released, Run, Snoozed, Succeeded
from taskq_worker.throttle import Throttle

logger = logging.getLogger("taskq.worker")

MAX_ITEMS = 250
MAX_BYTES = 1_048_576
PATIENCE = 5
"""Tries of a call that Redis answers with an error of its own, before its items are sent one by one."""


class Committer:
    """One lane's. ``add`` never waits; ``run`` sends until cancelled; ``flushed`` tells that all is out."""

    def __init__(
        self, store: AsyncStore, reporter: Reporter, on_acknowledged: Callable[[Run], None]
    ) -> None:
        self._store = store
        self._reporter = reporter
        self._acknowledged = on_acknowledged
        self._waiting: list[Run] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._throttle = Throttle(logger)
        self.sent = 0
        self.reports = 0
        """Calls that were answered; ``sent`` counts the runs in them."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Run) -> None:
        self._waiting.append(run)
        self._idle.clear()
        self._wake.set()

    async def flushed(self) -> None:
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            if not self._waiting:
                self._idle.set()
                await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            seats = {run.seat for run in batch}
            for seat in seats:
                seat.publish()
            await self._reporter.before_end_of(batch)
            for call, runs in self._calls(batch):
                await self._send(call, runs)
            for seat in seats:
                seat.publish()

    def _calls(self, batch: list[Run]) -> "list[tuple[Call[list[str]], list[Run]]]":
        groups: dict[tuple[str, str, type, str], list[Run]] = {}
        for run in batch:
            if isinstance(run.outcome, Dropped):
                self._acknowledged(run)
            else:
                # A hand-back names one reason for all of its call.
                reason = run.outcome.reason if isinstance(run.outcome, Released) else ""
                key = (run.seat.queue, run.worker, type(run.outcome), reason)
                groups.setdefault(key, []).append(run)
        out = []
        for (_, worker, _, _), runs in groups.items():
            out += [(_call(worker, part), part) for part in _bounded(runs)]
        return out

    async def _send(self, call: "Call[list[str]]", runs: list[Run]) -> None:
        tries = 0
        while True:
            try:
                words = await self._store.once(call)
                break
            except Exception as error:
                failure = understand(error)
                self._throttle.warning(
                    "cannot report %d jobs, will try again: %s", len(runs), failure
                )
                tries += 1
                if tries >= PATIENCE and not isinstance(failure, Unavailable):
                    await self._one_by_one(runs, failure)
                    return
                await asyncio.sleep(retry_delay(tries))
        self.sent += len(runs)
        self.reports += 1
        for run, word in zip(runs, words, strict=True):
            if word == "GONE":
                logger.warning("job %s: not reported, the server knows no such job", run.job_id)
            elif word in ("STALE", "WRONG_STATE"):
                logger.warning("job %s: late report refused, it is no longer ours", run.job_id)
            elif isinstance(run.outcome, (Failed, Crashed)):
                _log_end(run, run.outcome, word)
            elif word == "CANCELLED":
                logger.info("%s %s cancelled", run.job_id, run.claimed.job_type)
            elif word == "BROKEN":
                logger.error("job %s: its keys are broken, run `taskq doctor`", run.job_id)
            self._acknowledged(run)

    async def _one_by_one(self, runs: list[Run], failure: Exception) -> None:
        if len(runs) == 1:
            # Its lease is given up with it: reconcile hands it back, and somebody runs it again.
            logger.error("job %s: cannot be reported: %s", runs[0].job_id, failure)
            self._acknowledged(runs[0])
            return
        for run in runs:
            await self._send(_call(run.worker, [run]), [run])


def _log_end(run: Run, outcome: Failed | Crashed, word: str) -> None:
    """One line a failed run, so that nobody has to look at Redis to learn that code raises."""
    name = f"{run.job_id} {run.claimed.job_type}"
    if isinstance(outcome, Crashed):
        logger.warning("%s crashed: %s; %s", name, outcome.reason, word.lower())
        return
    error = json.loads(outcome.error)
    text = f"{error['type']}: {error['message'][:300]}"
    count = f"failure {run.claimed.failures + 1}"
    match word:
        case "RETRYING":
            logger.warning("%s %s: %s; again in %.1f s", name, count, text, outcome.delay_ms / 1000)
        case "CANCELLED":
            logger.info("%s cancelled", name)
        case _:
            logger.error("%s %s, the last: %s", name, count, text)
    logger.debug("%s\n%s", name, error.get("traceback", ""))


def _bounded(runs: list[Run]) -> list[list[Run]]:
    parts: list[list[Run]] = [[]]
    size = 0
    for run in runs:
        outcome = run.outcome
        weight = len(outcome.result) if isinstance(outcome, Succeeded) else 200
        if parts[-1] and (len(parts[-1]) == MAX_ITEMS or size + weight > MAX_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(run)
        size += weight
    return parts


def _call(worker: str, runs: Sequence[Run]) -> "Call[list[str]]":
    """The call for runs whose outcomes are of one kind."""
    keys = runs[0].seat.keys
    first = runs[0].outcome
    if isinstance(first, Succeeded):
        return calls.finish(keys, worker, [_success(run, run.outcome) for run in runs])
    if isinstance(first, Failed):
        return calls.fail(keys, worker, [_failure(run, run.outcome) for run in runs])
    if isinstance(first, Crashed):
        crashes = [
            (run.claimed.ulid, run.claimed.fence, run.outcome.reason)
            for run in runs
            if isinstance(run.outcome, Crashed)
        ]
        return calls.crash(keys, worker, crashes)
    if isinstance(first, Snoozed):
        return calls.snooze(
            keys,
            worker,
            [
                (run.claimed.ulid, run.claimed.fence, run.outcome.delay_ms)
                for run in runs
                if isinstance(run.outcome, Snoozed)
            ],
        )
    reason = first.reason if isinstance(first, Released) else "stop"
    return calls.release(
        keys, worker, [(run.claimed.ulid, run.claimed.fence) for run in runs], reason
    )


def _success(run: Run, outcome: Any) -> Success:
    return Success(
        run.claimed.ulid,
        run.claimed.fence,
        outcome.result,
        outcome.result_ttl_ms,
        outcome.keep_payload,
    )


def _failure(run: Run, outcome: Any) -> Failure:
    return Failure(
        run.claimed.ulid, run.claimed.fence, outcome.error, outcome.delay_ms, outcome.max_attempts
    )
