"""The page under /docs: whole without the internet, and with nothing that its policy forbids."""

import re
from typing import Any
from urllib.parse import urljoin

import pytest


async def test_all_that_the_page_loads_is_here(api: Any) -> None:
    page = await api.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text.replace("<!DOCTYPE html>", "")
    kinds = {"js": "text/javascript", "css": "text/css", "png": "image/png"}
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 4
    for address in loaded:
        answer = await api.http.get(urljoin("/docs", address))
        assert answer.status_code == 200, address
        assert answer.headers["content-type"].startswith(kinds[address.rsplit(".")[-1]])
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_shows_the_document(api: Any) -> None:
    script = (await api.http.get("/docs/start.js")).text
    (url,) = re.findall(r'url: "([^"]+)"', script)
    assert (await api.http.get(urljoin("/docs", url))).json()["openapi"].startswith("3.")


async def test_its_policy_names_no_other_host_and_no_script_in_the_page(api: Any) -> None:
    page = await api.http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert not re.search(r"https?:|\*|unsafe-eval", policy)
    assert not re.search(r"<script(?! src=)|<style|\son\w+=", page.text)


@pytest.mark.parametrize("name", ["redoc.standalone.js", "..%2f__init__.py", "x", "%00"])
async def test_nothing_else_of_the_package_is_served(api: Any, problem: Any, name: str) -> None:
    problem(await api.http.get(f"/docs/{name}"), 404, "not_found")
