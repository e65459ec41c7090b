"""Who may ask: Host and Origin where it is open, keys where it is not, and where it may be open at all."""

from collections.abc import Callable
from typing import Any

import pytest

from taskq.errors import ConfigError
from taskq.settings import load_settings
from taskq_api.app import create_app
from taskq_api.limits import is_loopback

Check = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"]
)
async def test_open_to_names_of_this_machine(api: Any, host: str) -> None:
    assert (await api.http.get("/queues", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.com", "evil.com:8000", "localhost.evil.com", "127.0.0.1.evil.com", "", "0.0.0.0:8000",
     "localhost@evil.com", "localhost:x", "evil.com/localhost", "[::2]"],
)  # fmt: skip
async def test_other_hosts_are_refused(api: Any, problem: Check, host: str) -> None:
    """F82: a name that was made to point here opens nothing."""
    for path in ("/queues", "/health", "/nope"):
        problem(await api.http.get(path, headers={"host": host}), 403, "forbidden_host")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.com", "https://evil.com:8000", "null", "http://localhost.evil.com:8000", "",
     "http://localhost:3000", "http://localhost", "file://", "http://localhost:8000@evil.com"],
)  # fmt: skip
async def test_foreign_origins_are_refused(api: Any, problem: Check, origin: str) -> None:
    """F82: another page in the same browser can neither read nor write."""
    job = await api.submit()
    for method, path in (
        ("GET", "/jobs"),
        ("POST", f"/jobs/{job['id']}/cancel"),
        ("POST", "/jobs"),
    ):
        answer = await api.http.request(method, path, headers={"origin": origin})
        problem(answer, 403, "forbidden_origin")
    assert (await api.http.get(f"/jobs/{job['id']}")).json()["state"] == "queued"


async def test_the_own_origin_is_welcome(api: Any) -> None:
    for origin in ("http://localhost:8000", "http://127.0.0.1:8000"):
        assert (await api.http.get("/jobs", headers={"origin": origin})).status_code == 200


async def test_the_bound_address_is_welcome(run_api: Any) -> None:
    async with run_api(api_host="127.0.0.5") as api:
        assert (await api.http.get("/jobs", headers={"host": "127.0.0.5:80"})).status_code == 200


async def test_an_open_port_serves_other_names_but_their_own_pages(
    run_api: Any, problem: Check, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_api(api_host="0.0.0.0", allow_open=True) as api:
        assert "ALLOW_OPEN" in caplog.text
        headers = {"host": "api:8000"}
        assert (await api.http.get("/jobs", headers=headers)).status_code == 200
        own = {**headers, "origin": "http://api:8000"}
        assert (await api.http.get("/jobs", headers=own)).status_code == 200
        foreign = {**headers, "origin": "http://evil.com:8000"}
        problem(await api.http.get("/jobs", headers=foreign), 403, "forbidden_origin")


class TestKeys:
    @pytest.mark.parametrize(
        "given",
        [
            "",
            "Bearer",
            "Bearer ",
            "Bearer wrong",
            "Bearer one,two",
            "Basic one",
            "one",
            "Bearer \xe9",
        ],
    )
    async def test_are_needed(self, run_api: Any, problem: Check, given: str) -> None:
        """F82: every route but health asks for a key."""
        async with run_api(api_keys="one, two") as api:
            headers = {"authorization": given.encode("latin-1")} if given else {}
            for method, path in (
                ("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/docs"), ("GET", "/openapi.json"),
                ("PATCH", "/queues/q"), ("GET", "/nope"), ("GET", "/health/"),
            ):  # fmt: skip
                answer = await api.http.request(method, path, headers=headers)
                problem(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
            for path in ("/health", "/ready"):
                assert (await api.http.get(path)).status_code == 200

    async def test_f82_count_in_the_header_alone(self, run_api: Any, problem: Check) -> None:
        """F82: a key in the URL, which logs keep, or in a cookie, which foreign pages send along, is none."""
        async with run_api(api_keys="one") as api:
            for options in (
                {"params": {"token": "one", "api_key": "one", "access_token": "one"}},
                {"headers": {"cookie": "token=one; session=one"}},
                {"headers": {"x-api-key": "one"}},
            ):
                problem(await api.http.post("/jobs", **options), 401, "unauthorized")

    @pytest.mark.parametrize("key", ["one", "two", "schlüssel"])
    async def test_open_the_door(self, run_api: Any, key: str) -> None:
        async with run_api(api_keys="one, two,,schlüssel") as api:
            # From anywhere: a key cannot be sent by somebody else's page.
            headers = {"authorization": f"bearer {key}".encode(), "host": "tasks.example.com"}
            assert (await api.http.get("/jobs", headers=headers)).status_code == 200

    async def test_let_it_listen_elsewhere(self) -> None:
        create_app(load_settings(api_host="0.0.0.0", api_keys="k"))

    async def test_must_be_there_if_they_are_set(self) -> None:
        with pytest.raises(ConfigError, match="holds no key"):
            create_app(load_settings(api_keys=" , "))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "::ffff:10.0.0.1"])
def test_is_not_open_to_the_network_by_accident(host: str) -> None:
    """F82: without keys it listens to this machine alone."""
    with pytest.raises(ConfigError, match="TASKQ_API_KEYS") as caught:
        create_app(load_settings(api_host=host))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3", "::ffff:127.0.0.1"]
)
def test_loopback_may_be_open(host: str) -> None:
    assert is_loopback(host)
    create_app(load_settings(api_host=host))
