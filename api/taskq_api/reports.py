"""What a worker over HTTP reports of its runs: each report is judged, sent and answered for itself."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from taskq import calls, codec, leases
from taskq.calls import Call, Failure, Success
from taskq.errors import BrokenKey, InvalidInput, JobNotFound, StaleFence, TaskqError
from taskq.ids import split_id
from taskq.keys import QueueKeys
from taskq.model import HeldReply
from taskq.states import State
from taskq.store import AsyncStore
from taskq_api.errors import Refused, describe, document, invalid
from taskq_api.schemas import RunProgress, RunResult
from taskq_api.schemas.leases import MAX_MESSAGE, MAX_TEXT, MAX_TRACE, ErrorOfRun

Report = TypeVar("Report", RunResult, RunProgress)

_STATES = {
    "OK": State.SUCCEEDED,
    "RETRYING": State.RETRYING,
    "FAILED": State.FAILED,
    "CANCELLED": State.CANCELLED,
    "QUEUED": State.QUEUED,
    "SCHEDULED": State.SCHEDULED,
}
DIED = "its process died"


class Reports:
    """Reports about the runs of one lease."""

    def __init__(self, store: AsyncStore, keys: QueueKeys, worker: str) -> None:
        self._store = store
        self._keys = keys
        self._worker = worker

    async def results(self, items: Sequence[Any], held: HeldReply) -> list[dict[str, Any]]:
        """Records how runs ended; ``held`` is what the lease holds before."""
        outcomes, taken = self._take(RunResult, items)
        kinds: dict[str, list[tuple[int, RunResult, str]]] = {}
        results: dict[int, bytes] = {}
        for i, report, ulid in taken:
            try:
                if report.outcome == "succeeded":
                    results[i] = codec.dumps(report.result, what="result")
            except InvalidInput as error:
                outcomes[i] |= _refusal(describe(error))
            else:
                kinds.setdefault(report.outcome, []).append((i, report, ulid))
        # One call for each kind. Should a later one fail, the whole may be sent again.
        for kind, rows in kinds.items():
            if kind == "succeeded":
                done = [Success(ulid, str(r.fence), results[i]) for i, r, ulid in rows]
                call = calls.finish(self._keys, self._worker, done)
            elif kind == "failed":
                call = self._fail(rows, held)
            else:
                call = self._others(kind, rows)
            words = await self._store.run(call)
            await self._answer(outcomes, [(i, ulid) for i, _, ulid in rows], words)
        return outcomes

    def _fail(self, rows: Sequence[tuple[int, RunResult, str]], held: HeldReply) -> Call[list[str]]:
        runs = {run.job.fence: run.job for run in held.runs}
        failures = []
        for _, report, ulid in rows:
            # Of a run that is not held the answer is what became of it, whatever is asked for here.
            job = runs.get(str(report.fence))
            most = leases.attempts(job.max_attempts if job else None)
            delay_ms = leases.back_off_ms(job.failures if job else 0)
            if report.retry_after is not None:
                delay_ms = calls.delay_to_ms(report.retry_after, "retry_after")
            again = 0 if report.retry is False else most
            failures.append(Failure(ulid, str(report.fence), _error(report.error), delay_ms, again))
        return calls.fail(self._keys, self._worker, failures)

    def _others(self, kind: str, rows: Sequence[tuple[int, RunResult, str]]) -> Call[list[str]]:
        if kind == "snoozed":
            naps = [
                (ulid, str(r.fence), calls.delay_to_ms(r.delay or 0, "delay"))
                for _, r, ulid in rows
            ]
            return calls.snooze(self._keys, self._worker, naps)
        if kind == "crashed":
            deaths = [(ulid, str(r.fence), r.reason or DIED) for _, r, ulid in rows]
            return calls.crash(self._keys, self._worker, deaths)
        runs = [(ulid, str(r.fence)) for _, r, ulid in rows]
        return calls.release(self._keys, self._worker, runs, "handed back")

    async def progress(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Notes how far runs are, and their lines of log. Raises ``OutOfMemory`` for lines."""
        outcomes, taken = self._take(RunProgress, items)
        at = time.time_ns() // 1_000_000
        steps: list[tuple[int, str, str, bytes]] = []
        lines: list[tuple[int, str, str, int, bytes]] = []
        for i, report, ulid in taken:
            outcomes[i] |= {"status": 200, "state": State.RUNNING.value}
            fence = str(report.fence)
            if report.fraction is not None:
                told = {"fraction": report.fraction, "message": _text(report.message or "")}
                steps.append((i, ulid, fence, _json({**told, "at": at})))
            lines += [
                (i, ulid, fence, entry.seq, _json({"line": _text(entry.line), "at": at}))
                for entry in sorted(report.log or (), key=lambda entry: entry.seq)
            ]
        if steps:
            call = calls.progress(self._keys, self._worker, [row[1:] for row in steps])
            words = await self._store.run(call)
            await self._refuse(outcomes, steps, words)
        if lines:
            call = calls.log(self._keys, self._worker, [row[1:] for row in lines])
            words = await self._store.run(call)
            await self._refuse(outcomes, lines, words)
        return outcomes

    async def _refuse(
        self, outcomes: list[dict[str, Any]], rows: Sequence[tuple[Any, ...]], words: Sequence[str]
    ) -> None:
        """Answers for the rows (number, ulid, ..) that were not taken."""
        refused = {
            row[0]: (row[1], word) for row, word in zip(rows, words, strict=True) if word != "OK"
        }
        late = [(i, ulid) for i, (ulid, _) in refused.items()]
        await self._answer(outcomes, late, [word for _, word in refused.values()])

    def _take(
        self, model: type[Report], items: Sequence[Any]
    ) -> tuple[list[dict[str, Any]], list[tuple[int, Report, str]]]:
        """(outcomes, of which those of refused items are complete; (number, report, ulid) of the others)."""
        outcomes: list[dict[str, Any]] = []
        taken = []
        for i, item in enumerate(items):
            known = item if isinstance(item, dict) else {}
            job_id, fence = known.get("id"), known.get("fence")
            outcomes.append(
                {
                    "id": job_id[:200] if isinstance(job_id, str) else None,
                    "fence": fence if type(fence) is int and 0 <= fence < 1 << 53 else None,
                }
            )
            try:
                report = _parsed(model, item)
                taken.append((i, report, self._ulid(report.id)))
            except Refused as error:
                outcomes[i] |= _refusal(document(error.code, str(error), field=error.field))
            except TaskqError as error:
                outcomes[i] |= _refusal(describe(error))
        return outcomes, taken

    def _ulid(self, job_id: str) -> str:
        try:
            queue, ulid = split_id(job_id)
        except InvalidInput:
            queue, ulid = "", ""
        if queue != self._keys.queue:
            raise JobNotFound(job_id[:100])
        return ulid

    async def _answer(
        self, outcomes: list[dict[str, Any]], rows: Sequence[tuple[int, str]], words: Sequence[str]
    ) -> None:
        """Says what became of reports; of those that came too late, what their jobs are now."""
        late = [ulid for (_, ulid), word in zip(rows, words, strict=True) if word not in _STATES]
        states = dict(zip(late, await self._states(late), strict=True))
        for (i, ulid), word in zip(rows, words, strict=True):
            if word in _STATES:
                outcomes[i] |= {"status": 200, "state": _STATES[word].value}
            else:
                job_id = outcomes[i]["id"] or ulid
                refused = _refusal(describe(_why(word, job_id, states[ulid])))
                outcomes[i] |= refused | {"state": states[ulid]}

    async def _states(self, ulids: Iterable[str]) -> list[str | None]:
        commands = [("HGET", self._keys.job(ulid), "state") for ulid in ulids]
        if not commands:
            return []
        found = await self._store.pipeline(commands)
        texts = [
            value.decode(errors="replace") if isinstance(value, bytes) else "" for value in found
        ]
        return [text if text in set(State) else None for text in texts]


def _why(word: str, job_id: str, state: str | None) -> TaskqError:
    if word == "GONE":
        return JobNotFound(job_id)
    if word == "BROKEN":
        return BrokenKey(f"the keys of job {job_id} are broken: run `taskq doctor`")
    return StaleFence(
        f"this run of job {job_id} is over: its lease ran out, it was past its timeout, or it was reported "
        "otherwise before. Drop what you have of it",
        state=state,
    )


def _refusal(problem: dict[str, Any]) -> dict[str, Any]:
    return {"status": problem["status"], "problem": problem}


def _parsed(model: type[Report], item: Any) -> Report:
    if not isinstance(item, dict):
        raise Refused("invalid", "a report must be a JSON object")
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error) from None


def _error(error: ErrorOfRun | None) -> bytes:
    """What is kept of an error: the same members as under a Python worker, each cut."""
    given = error or ErrorOfRun()
    fields = {"type": given.type, "message": given.message[:MAX_MESSAGE]}
    if given.traceback:
        long = len(given.traceback) > MAX_TRACE
        fields["traceback"] = ("...\n" if long else "") + given.traceback[-MAX_TRACE:]
    if given.code is not None:
        fields["code"] = given.code
    return _json(fields)


def _text(text: str) -> str:
    return text[:MAX_TEXT]


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace")
