"""The dashboard: files that were built beforehand, and one page for every address under ``/ui``.

The page is the same for everybody and holds no data; all that it shows it asks of the public routes.
"""

from importlib.resources import as_file, files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from taskq_api.access import public
from taskq_api.render import encode, json_response
from taskq_api.version import VERSION

router = APIRouter(include_in_schema=False)

_IMMUTABLE = "public, max-age=31536000, immutable"
_ABOUT = encode({"name": "taskq", "version": VERSION, "docs": "/docs", "openapi": "/openapi.json"})


def _folder() -> Path:
    with as_file(files("taskq_api") / "static") as folder:
        return folder


class _Assets(StaticFiles):
    """Files whose names hold a digest of their content: they may be kept for ever."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if answer.status_code == 200:
            answer.headers["cache-control"] = _IMMUTABLE
        return answer


def mount_assets(app: FastAPI) -> None:
    """Serves the scripts, styles and fonts of the page, compressed where the client takes it."""
    app.mount("/assets", GZipMiddleware(_Assets(directory=_folder() / "assets"), minimum_size=500))


def _page(depth: int) -> Response:
    # Addresses in the page are relative, so that it also works behind a prefix of a proxy: a page that
    # lies deeper has to climb up first.
    text = (_folder() / "index.html").read_text(encoding="utf-8")
    return HTMLResponse(
        text.replace('"./', '"' + "../" * depth) if depth else text,
        headers={"cache-control": "no-cache", "vary": "accept"},
    )


@router.head("/")
@router.get("/")
@public
async def root(request: Request) -> Response:
    """The dashboard for a browser, a few words of JSON for anything else."""
    if "text/html" in request.headers.get("accept", ""):
        return _page(0)
    return json_response(_ABOUT, headers={"vary": "accept"})


@router.get("/ui/{path:path}")
@public
async def page(path: str) -> Response:
    return _page(1 + path.count("/"))


@router.get("/favicon.svg")
@public
async def icon() -> Response:
    return FileResponse(_folder() / "favicon.svg", headers={"cache-control": "max-age=86400"})
