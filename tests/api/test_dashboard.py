"""The dashboard's files, as they are served."""

import gzip
import re
from pathlib import Path
from typing import Any

import taskq_api

HTML = {"accept": "text/html,application/xhtml+xml"}
FIRST_LOAD_MAX = 350_000
"""Bytes, compressed, of all that the first page needs."""

STATIC = Path(taskq_api.__file__).parent / "static"


def references(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]+)"', page.split("<noscript>")[0])


def policy(answer: Any) -> dict[str, str]:
    text = answer.headers["content-security-policy"]
    return {
        name: rest for name, _, rest in (part.strip().partition(" ") for part in text.split(";"))
    }


async def test_a_browser_gets_the_page_and_anything_else_a_few_words(api: Any) -> None:
    page = await api.http.get("/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert '<div id="root">' in page.text
    assert (await api.http.get("/")).json()["name"] == "taskq"
    assert page.headers["vary"] == "accept"
    assert page.headers["cache-control"] == "no-cache"


async def test_its_files_are_found_from_every_depth(api: Any) -> None:
    for path in ("/", "/ui/jobs", "/ui/jobs/default:01K2J7Q0V4T8Z3M6N9R1S5X7YB", "/ui/a/b/c"):
        page = await api.http.get(path, headers=HTML)
        found = references(page.text)
        assert len(found) >= 3, found
        for reference in found:
            assert reference.startswith("." if path == "/" else ".."), reference
            file = await api.http.get(str(page.url.join(reference).path))
            assert file.status_code == 200, (path, reference)


async def test_a_name_is_kept_for_ever_and_the_page_is_not(api: Any) -> None:
    page = await api.http.get("/", headers=HTML)
    script = next(name for name in references(page.text) if name.endswith(".js"))
    file = await api.http.get("/" + script.removeprefix("./"))
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert file.headers["content-encoding"] == "gzip"
    assert file.headers["x-content-type-options"] == "nosniff"
    missing = await api.http.get("/assets/none.js")
    assert missing.status_code == 404
    assert missing.headers["cache-control"] == "no-store"
    assert (await api.http.get("/queues")).headers["cache-control"] == "no-store"


async def test_nothing_in_the_page_runs_but_its_own_files(api: Any) -> None:
    for path in ("/", "/ui/jobs"):
        page = await api.http.get(path, headers=HTML)
        rules = policy(page)
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert rules["frame-ancestors"] == "'none'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert "<style" not in page.text
        assert not re.search(r"\son\w+=|javascript:", page.text)
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page.text))


async def test_the_page_needs_no_key_and_what_it_shows_does(run_api: Any) -> None:
    async with run_api(api_keys="secret") as api:
        for path in ("/", "/ui/jobs/x", "/favicon.svg"):
            assert (await api.http.get(path, headers=HTML)).status_code == 200
        for path in ("/queues", "/jobs", "/workers", "/ui", "/assets"):
            assert (await api.http.get(path, headers=HTML)).status_code == 401


async def test_no_path_leads_out_of_the_folder(api: Any) -> None:
    for path in ("/assets/../index.html", "/assets/%2e%2e/app.py", "/assets/..%2f..%2fapp.py"):
        assert (await api.http.get(path)).status_code in (404, 405), path


def test_the_first_load_is_small() -> None:
    page = (STATIC / "index.html").read_text()
    files = [STATIC / name for name in references(page) if name.startswith("./assets/")]
    fonts = list((STATIC / "assets").glob("*.woff2"))
    weight = sum(len(gzip.compress(file.read_bytes(), 6)) for file in files)
    weight += sum(font.stat().st_size for font in fonts)
    assert weight < FIRST_LOAD_MAX, f"{weight} bytes"


def test_the_licences_of_what_is_built_in_are_told() -> None:
    text = (STATIC / "licenses.md").read_text()
    for name in ("react", "react-router", "@tanstack/react-query", "radix-ui", "cmdk"):
        assert name in text, name
    assert "SIL OPEN FONT LICENSE" in (STATIC / "licenses-fonts.txt").read_text()
