"""API keys, and the trail of what people did."""

import math
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from taskq.apikeys import KeyRequest, Scope
from taskq.present import entry_to_dict, key_to_dict, rfc3339
from taskq_api import schemas
from taskq_api.access import access_of, needs
from taskq_api.deps import acting, known_parameters, parse, read_json, services
from taskq_api.docs import BODY, REDIS, answers, body
from taskq_api.render import encode, json_response

router = APIRouter(tags=["keys"])


@router.get(
    "/keys",
    responses=answers({200: schemas.KeyList}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.ADMIN)
async def list_keys(request: Request) -> Response:
    """Every stored key and what it may do; secrets are not kept anywhere."""
    keys = await services(request).keys.list()
    return json_response(encode({"keys": [key_to_dict(key) for key in keys]}))


@router.get(
    "/keys/self",
    responses=answers({200: schemas.Self}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs()
async def show_self(request: Request) -> Response:
    """Who this request is from, and what it may do: for clients that show only what they can use."""
    access = access_of(request)
    key = services(request).ring.key_of(access)
    return json_response(
        encode(
            {
                "who": access.who,
                "name": access.name or None,
                "scopes": sorted(access.scopes),
                "queues": None if access.queues is None else sorted(access.queues),
                "job_types": None if access.job_types is None else sorted(access.job_types),
                "rate": None if access.rate is None else str(access.rate),
                "expires_at": None if key is None else rfc3339(key.expires_at),
            }
        )
    )


@router.post(
    "/keys",
    status_code=201,
    responses=answers({201: schemas.NewKey}, *BODY, "redis_out_of_memory", *REDIS),
    openapi_extra=body(schemas.KeyRequest),
)
@needs(Scope.ADMIN)
async def create_key(request: Request) -> Response:
    """Makes a key and answers its `token`, this once. From the first key on, an API that was open asks
    for one."""
    its = services(request)
    wanted: schemas.KeyRequest = parse(schemas.KeyRequest, await read_json(request))
    asked = KeyRequest(
        wanted.name,
        wanted.scopes,
        wanted.queues,
        wanted.job_types,
        wanted.rate,
        None if wanted.expires is None else math.ceil(wanted.expires * 1000),
    )
    async with acting(request, "key.create", "", **asked.parameters()) as note:
        key, token = await its.keys.create(asked)
        note.target = key.id
    await its.ring.read()  # so that it opens this very process at once
    return json_response(encode({**key_to_dict(key), "token": token}), 201)


@router.delete(
    "/keys/{key_id}", responses=answers({200: schemas.RevokedKey}, "key_not_found", *REDIS)
)
@needs(Scope.ADMIN)
async def revoke_key(request: Request, key_id: str) -> Response:
    """Revokes a key: this process refuses it at once, others within five seconds."""
    its = services(request)
    async with acting(request, "key.revoke", key_id[:100]) as note:
        note.parameters["name"] = name = await its.keys.revoke(key_id)
    await its.ring.read()
    return json_response(encode({"id": key_id, "name": name, "revoked": True}))


@router.get(
    "/audit",
    responses=answers({200: schemas.AuditPage}, "invalid", *REDIS),
    dependencies=[Depends(known_parameters)],
)
@needs(Scope.ADMIN)
async def list_audit(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="entries at most")] = 50,
    cursor: Annotated[
        str | None, Query(max_length=50, description="`next_cursor` of the page before")
    ] = None,
) -> Response:
    """What was done to jobs, queues and keys, over REST and on the command line, newest first. The last
    10,000 entries are kept."""
    entries, following = await services(request).audit.page(limit=limit, cursor=cursor)
    shown = [entry_to_dict(entry) for entry in entries]
    return json_response(encode({"entries": shown, "next_cursor": following}))
