"""Leases: run jobs over HTTP, in any language."""

from typing import Any

from fastapi import APIRouter, Request, Response

from taskq import leases
from taskq.apikeys import Scope
from taskq.ids import join_id
from taskq.model import Claimed
from taskq.present import rfc3339
from taskq_api.access import access_of, needs
from taskq_api.claiming import Claiming, Given, Wanted
from taskq_api.connection import Connection
from taskq_api.deps import parse, read_json, services, stopping
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.leasing import Desk, queue_of
from taskq_api.render import encode, json_response, splice
from taskq_api.reports import Reports
from taskq_api.schemas import (
    HandBack,
    Heartbeat,
    Lease,
    LeaseRequest,
    ProgressAnswer,
    ProgressRequest,
    ResultsAnswer,
    ResultsEnvelope,
    ResultsRequest,
)
from taskq_api.schemas.leases import ProgressEnvelope

router = APIRouter(tags=["leases"])

_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 200 characters, a new one for each claim. The same key and body again, in the same "
    "queue and with the same API key, answers the same lease and those of its jobs that it still holds, "
    "whether the first answer arrived or not; another body is refused (409). Remembered for `lease_seconds` "
    "and ten minutes. `wait` may differ.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


@router.post(
    "/leases",
    responses=answers(
        {200: Lease}, *BODY, "idempotency_conflict", "lease_lost", "not_ready", *REDIS
    ),
    openapi_extra={**body(LeaseRequest), "parameters": [_KEY_PARAMETER]},
)
@needs(Scope.WORK)
async def claim_jobs(request: Request) -> Response:
    """Takes up to `max` jobs, those that are next in line, and answers them under a new lease. Where there is
    none, waits up to `wait` seconds for one; then `id` is null and `jobs` empty.

    Send a heartbeat every third of `lease_seconds`, and report each run as it ends. A client that hangs up
    while it waits takes nothing."""
    wanted = Wanted.of(
        parse(LeaseRequest, await read_json(request)),
        access_of(request),
        request.headers.get("idempotency-key"),
    )
    desk = Desk(services(request), access_of(request))
    async with Connection(request) as connection:
        given = await Claiming(desk).jobs(wanted, connection, stopping(request))
    return json_response(_lease_body(given, wanted))


def _lease_body(given: Given, wanted: Wanted) -> bytes:
    lease = given.lease
    fields = {
        "id": lease.lease if lease else None,
        "queue": wanted.queue,
        "worker": lease.worker if lease else None,
        "lease_seconds": wanted.lease_ms / 1000,
        "expires_at": rfc3339(given.expires_at),
    }
    jobs = b",".join(_job_body(wanted.queue, job, at) for job, at in given.jobs)
    return encode(fields)[:-1] + b',"jobs":[%s]}' % jobs


def _job_body(queue: str, job: Claimed, started_at: float) -> bytes:
    fields: dict[str, Any] = {
        "id": join_id(queue, job.ulid),
        "job_type": job.job_type,
        "fence": int(job.fence),
        "attempt": job.attempts,
        "failures": job.failures,
        "max_attempts": leases.attempts(job.max_attempts),
        "priority": job.priority,
        "timeout": leases.timeout_ms(job) / 1000,
        "deadline": rfc3339(leases.deadline(job, started_at)),
        "created_at": rfc3339(job.created_at),
        "suspect": job.suspect,
    }
    return splice(fields, payload=job.payload)


@router.post(
    "/leases/{lease_id}/heartbeat",
    responses=answers({200: Heartbeat}, "lease_not_found", "lease_lost", *REDIS),
)
@needs(Scope.WORK)
async def renew_lease(request: Request, lease_id: str) -> Response:
    """Renews the lease for another `lease_seconds`, and says which runs to stop. Needs no body.

    A run past its timeout is not renewed: it is ended as failed and named in `timed_out`. 410 `lease_lost`:
    the lease ran out before this came; stop all its runs and claim anew."""
    desk = Desk(services(request), access_of(request))
    lease = await desk.find(lease_id)
    held, late = await desk.beat(lease)
    queue, timed_out = queue_of(lease), {run.job.ulid for run in late}
    runs = [run for run in held.runs if run.job.ulid not in timed_out]
    return json_response(
        encode(
            {
                "id": lease.lease,
                "lease_seconds": lease.lease_ms / 1000,
                "expires_at": rfc3339(held.lease_until),
                "held": [join_id(queue, run.job.ulid) for run in runs],
                "cancel": [join_id(queue, run.job.ulid) for run in runs if run.cancel],
                "timed_out": [join_id(queue, run.job.ulid) for run in late],
            }
        )
    )


@router.post(
    "/leases/{lease_id}/results",
    responses=answers({200: ResultsAnswer}, *BODY, "lease_not_found", *REDIS),
    openapi_extra=body(ResultsRequest),
)
@needs(Scope.WORK)
async def report_results(request: Request, lease_id: str) -> Response:
    """Records how runs ended, up to 100, each for itself; the answer is 200 also if some are refused: look at
    `refused`. May be sent again after a lost answer, also when the lease is over by then."""
    its = services(request)
    reports = parse(ResultsEnvelope, await read_json(request)).results
    desk = Desk(its, access_of(request))
    lease = await desk.find(lease_id)
    held = await desk.held(lease)
    runs = Reports(its.client.store, desk.keys(lease), lease.worker)
    outcomes = await runs.results(reports, held)
    left = await desk.left(lease)
    recorded = sum(outcome["status"] == 200 for outcome in outcomes)
    return json_response(
        encode(
            {
                "recorded": recorded,
                "refused": len(outcomes) - recorded,
                "held": left,
                "results": outcomes,
            }
        )
    )


@router.post(
    "/leases/{lease_id}/progress",
    responses=answers(
        {200: ProgressAnswer}, *BODY, "lease_not_found", "redis_out_of_memory", *REDIS
    ),
    openapi_extra=body(ProgressRequest),
)
@needs(Scope.WORK)
async def report_progress(request: Request, lease_id: str) -> Response:
    """Notes how far runs are and lines for their logs, each run for itself. Does not renew the lease. Lines
    that were stored already are passed over, so it may be sent again."""
    its = services(request)
    news = parse(ProgressEnvelope, await read_json(request)).runs
    desk = Desk(its, access_of(request))
    lease = await desk.find(lease_id)
    runs = Reports(its.client.store, desk.keys(lease), lease.worker)
    return json_response(encode({"runs": await runs.progress(news)}))


@router.delete("/leases/{lease_id}", responses=answers({200: HandBack}, "lease_not_found", *REDIS))
@needs(Scope.WORK)
async def hand_back_lease(request: Request, lease_id: str) -> Response:
    """Ends the lease and hands all of its jobs back to their old places in line, burning nothing; those that
    were asked to stop end as cancelled. What a worker sends when it is stopped."""
    desk = Desk(services(request), access_of(request))
    lease = await desk.find(lease_id)
    return json_response(encode({"released": await desk.hand_back(lease, "handed back")}))
