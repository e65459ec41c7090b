"""``/docs``: the OpenAPI document as a page with forms, without loading anything from the internet."""

from importlib.resources import as_file, files
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException

from taskq_api.access import needs

router = APIRouter(include_in_schema=False)

# Addresses are relative, so that the page also works behind a prefix of a proxy.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>taskq API</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
"""
# Swagger UI as FastAPI's page loads it from a CDN, in a package that is kept up to date with it.
_ASSETS = {"swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"}


def _folder() -> Path:
    with as_file(files("fastapi_offline") / "static") as folder:
        return folder


@router.get("/docs")
@needs()
async def page() -> Response:
    return HTMLResponse(_PAGE)


@router.get("/docs/start.js")
@needs()
async def start() -> Response:
    return Response(_START, media_type="text/javascript")


@router.get("/docs/{name}")
@needs()
async def asset(name: str) -> Response:
    if name not in _ASSETS:
        raise HTTPException(404)
    return FileResponse(_folder() / name)
