"""Which jobs a bulk action is about: its filter, and the jobs that match it, page by page."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskq import calls
from taskq.errors import InvalidInput
from taskq.ids import check_job_type, check_queue
from taskq.model import Job
from taskq.states import TERMINAL, State
from taskq.store import AsyncStore

MAX_IDS = 1000

ACTIONS: dict[str, tuple[State, ...]] = {
    "cancel": (State.SCHEDULED, State.RETRYING, State.QUEUED, State.RUNNING),
    "retry": (State.FAILED,),
    "delete": (State.FAILED, State.CANCELLED, State.SUCCEEDED),
    "edit": (State.SCHEDULED, State.RETRYING, State.QUEUED),
}
"""What can be done, and the states from which it can: in the order in which jobs go through them, so that one
that moves on during the action is met later and not missed."""


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Which jobs: of one queue, and all that is named. ``states`` () stands for all that the action allows.

    ``since`` (included) and ``before`` (ms) are about when an ended job ended, and when another was stored.
    """

    queue: str
    states: tuple[State, ...] = ()
    job_type: str = ""
    fingerprint: str = ""
    since: int | None = None
    before: int | None = None
    ids: tuple[str, ...] = ()
    """ULIDs."""

    def text(self) -> str:
        """As it is stored."""
        said = {
            "states": [state.value for state in self.states],
            "job_type": self.job_type,
            "fingerprint": self.fingerprint,
            "since": self.since,
            "before": self.before,
            "ids": list(self.ids),
        }
        return json.dumps({name: value for name, value in said.items() if value})

    @classmethod
    def parse(cls, queue: str, text: str) -> "BulkFilter":
        said = json.loads(text)
        return cls(
            queue,
            tuple(State(state) for state in said.get("states", ())),
            said.get("job_type", ""),
            said.get("fingerprint", ""),
            said.get("since"),
            said.get("before"),
            tuple(said.get("ids", ())),
        )

    def matches(self, job: Job) -> bool:
        """The rest of the filter, for jobs that were named by their ids."""
        at = (job.finished_at if job.state in TERMINAL else job.created_at) or 0
        return (
            job.state in self.states
            and self.job_type in ("", job.job_type)
            and self.fingerprint in ("", job.fingerprint or "unknown")
            and (self.since is None or at >= self.since)
            and (self.before is None or at < self.before)
        )


def check_filter(action: str, wanted: BulkFilter) -> BulkFilter:
    """The filter with its states filled in. Raises ``InvalidInput`` for what the action cannot do."""
    if action not in ACTIONS:
        raise InvalidInput(f"no action {action!r}: there are {', '.join(ACTIONS)}", field="action")
    check_queue(wanted.queue)
    if wanted.job_type:
        check_job_type(wanted.job_type)
    if len(wanted.ids) > MAX_IDS:
        raise InvalidInput(f"at most {MAX_IDS} ids", field="ids")
    allowed = ACTIONS[action]
    for state in wanted.states:
        if state not in allowed:
            known = ", ".join(allowed)
            raise InvalidInput(f"{action} is for jobs that are {known}, not {state}", field="state")
    return replace(wanted, states=tuple(s for s in allowed if s in (wanted.states or allowed)))


async def matching(
    store: AsyncStore, wanted: BulkFilter, cursor: str, size: int
) -> tuple[Sequence[Job], int, str]:
    """(jobs, entries looked at, where the next page begins or '') of at most ``size`` entries."""
    if wanted.ids:
        at = int(cursor or 0)
        part = wanted.ids[at : at + size]
        found = await _named(store, wanted.queue, part)
        ahead = at + len(part)
        jobs = [job for job in found if wanted.matches(job)]
        return jobs, len(part), str(ahead) if ahead < len(wanted.ids) else ""
    at, box, score, last = json.loads(cursor) if cursor else (0, "", "", "")
    state = wanted.states[at]
    start = calls.Cursor(box, score, last)
    if not box and wanted.before is not None and state in TERMINAL:
        start = calls.Cursor(state.value, str(wanted.before), "")
    page = await store.run(
        calls.page(
            store.keys.queue(wanted.queue),
            state,
            job_type=wanted.job_type,
            limit=size,
            budget=size,
            cursor=start,
            fingerprint=wanted.fingerprint,
            since=wanted.since,
            before=wanted.before,
        )
    )
    if page.cursor is not None:
        behind = [at, page.cursor.box, page.cursor.score, page.cursor.id]
    elif at + 1 < len(wanted.states):
        behind = [at + 1, "", "", ""]
    else:
        return page.jobs, page.looked, ""
    return page.jobs, page.looked, json.dumps(behind, separators=(",", ":"))


_FIELDS = (
    b"state",
    b"type",
    b"priority",
    b"created_at",
    b"finished_at",
    b"fence",
    b"fingerprint",
    b"cancel",
)


async def _named(store: AsyncStore, queue: str, ulids: Sequence[str]) -> list[Job]:
    keys = store.keys.queue(queue)
    replies: list[Any] = await store.pipeline(
        [("HMGET", keys.job(ulid), *_FIELDS, "stub") for ulid in ulids]
    )
    out = []
    for ulid, reply in zip(ulids, replies, strict=True):
        if isinstance(reply, Exception) or not reply[0] or reply[-1]:
            continue
        pairs = [
            x for pair in zip(_FIELDS, reply, strict=False) if pair[1] is not None for x in pair
        ]
        job = calls.parse_job(queue, ulid, pairs, (), ())
        if job is not None:
            out.append(job)
    return out
