"""Many submissions in one request: each is judged and stored for itself."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from taskq import calls, codec
from taskq.client import AsyncClient, chunks, refusal, submit_specs, traced
from taskq.errors import TaskqError, Unavailable, UniqueHeld
from taskq.ids import join_id
from taskq.model import Enqueued, JobSpec
from taskq.submission import make_spec
from taskq.tasks import TaskOptions
from taskq_api.access import Access
from taskq_api.deps import hidden_holder
from taskq_api.errors import Refused, describe, document, invalid
from taskq_api.payloads import Payloads
from taskq_api.schemas import BatchItem

Problem = dict[str, Any]

YIELD_BYTES = 16_384

DEFAULTS = TaskOptions()
"""What a submission gets where it says nothing; the task's own options are the worker's to know."""


def _refused(problem: Problem) -> dict[str, Any]:
    return {"status": problem["status"], "problem": problem}


def _outcome(
    queue: str, spec: JobSpec, outcome: Enqueued | TaskqError, access: Access
) -> dict[str, Any]:
    if isinstance(outcome, TaskqError):
        return _refused(describe(outcome))
    error = refusal(queue, spec, outcome)
    if isinstance(error, UniqueHeld) and access.job_types is not None:
        return _refused(document(error.code, str(hidden_holder(error, access))))
    if error is not None:
        return _refused(describe(error))
    known = spec.check and not outcome.created
    return {
        "status": 200 if known else 201,
        "id": join_id(queue, spec.id),
        "state": outcome.state,
    }


class Batch:
    """Jobs on their way: taken, then stored queue by queue, then answered for."""

    def __init__(
        self,
        new_ulid: Callable[[], str],
        access: Access,
        payloads: Payloads,
        traceparent: str | None = None,
    ) -> None:
        self._payloads = payloads
        self._new_ulid = new_ulid
        self._traceparent = traceparent
        self._access = access
        self.durable = False
        """Whether an item asks for it."""
        self._outcomes: list[dict[str, Any]] = []
        self._values: dict[int, Any] = {}
        self._wanted: dict[str, list[tuple[int, JobSpec]]] = {}

    def take(self, items: list[Any]) -> None:
        """Judges every item; those that are refused have their outcome already."""
        for i, item in enumerate(items):
            outcome: dict[str, Any] = {}
            try:
                queue, spec = self._spec(item)
            except Refused as error:
                outcome = _refused(document(error.code, str(error), field=error.field))
            except TaskqError as error:
                outcome = _refused(describe(error))
            else:
                self._wanted.setdefault(queue, []).append((i, spec))
                self.durable = self.durable or spec.durable
                self._values[i] = item.get("payload", {})
            self._outcomes.append(outcome)

    async def judge(self) -> None:
        """Holds what was taken against what workers have published."""
        for queue, wanted in self._wanted.items():
            for job_type in {spec.job_type for _, spec in wanted}:
                await self._payloads.look(queue, job_type)
            fits, looked = [], 0
            for i, spec in wanted:
                looked += len(spec.payload)
                if looked > YIELD_BYTES:
                    # Other requests have their turn.
                    looked = 0
                    await asyncio.sleep(0)
                try:
                    payload = self._values.pop(i)
                    self._payloads.judge(queue, spec.job_type, payload, len(spec.payload))
                except TaskqError as error:
                    self._outcomes[i] = _refused(describe(error))
                else:
                    fits.append((i, spec))
            self._wanted[queue] = fits
        self._wanted = {queue: fits for queue, fits in self._wanted.items() if fits}

    def _spec(self, item: Any) -> tuple[str, JobSpec]:
        if not isinstance(item, dict):
            raise Refused("invalid", "a job must be a JSON object")
        try:
            wanted = BatchItem.model_validate(item)
        except ValidationError as error:
            raise invalid(error) from None
        queue, spec = make_spec(
            self._new_ulid,
            wanted.job_type,
            codec.dumps(wanted.payload),
            wanted.options(wanted.idempotency_key),
            DEFAULTS,
            key_owner=self._access.owner,
        )
        calls.check_spec(spec)
        self._access.check_use(queue, spec.job_type)
        return queue, spec if self._traceparent is None else replace(
            spec, traceparent=self._traceparent
        )

    def queues(self) -> list[str]:
        return list(self._wanted)

    async def store(self, client: AsyncClient, queue: str) -> None:
        """Stores what goes to one queue. Raises ``Unavailable`` only if nothing of the batch is stored."""
        wanted = iter(self._wanted[queue])
        for chunk in chunks([spec for _, spec in self._wanted[queue]]):
            outcomes: Sequence[Enqueued | TaskqError]
            try:
                with traced(queue, chunk) as spanned:
                    outcomes = await submit_specs(client.store, queue, spanned)
            except TaskqError as error:
                if isinstance(error, Unavailable) and not self._any_stored():
                    raise
                outcomes = [error] * len(chunk)
            for outcome in outcomes:
                i, spec = next(wanted)
                self._outcomes[i] = _outcome(queue, spec, outcome, self._access)

    def _any_stored(self) -> bool:
        return any(outcome.get("id") for outcome in self._outcomes)

    def answer(self) -> dict[str, Any]:
        statuses = [outcome["status"] for outcome in self._outcomes]
        created, known = statuses.count(201), statuses.count(200)
        return {
            "created": created,
            "known": known,
            "refused": len(statuses) - created - known,
            "items": self._outcomes,
        }
