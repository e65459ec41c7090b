"""Prometheus and Grafana: files that load, and queries over nothing but what /metrics tells."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.stack import ROOT
from taskq.settings import load_settings
from taskq_api.app import create_app

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here")

DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "taskq.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries() -> list[str]:
    """Every expression of the dashboard, its variables replaced by what they may stand for."""
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [q.replace("$__rate_interval", "1m").replace("$queue", ".*") for q in found]


def promtool(*words: str) -> None:
    done = subprocess.run(
        [str(PROMTOOL), *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_its_configuration_and_the_alerts() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml")


@needs_promtool
def test_alerts_fire_when_they_should_and_else_not() -> None:
    promtool("test", "rules", "alerts_test.yml")


@needs_promtool
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(queries())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_there_is_an_alert_for_each_thing_that_people_must_know() -> None:
    assert {
        "TaskqOldestWait",
        "TaskqTypeWithoutWorker",
        "TaskqFailureRate",
        "TaskqLeasesExpire",
        "TaskqRedisMemoryShort",
        "TaskqAppendOnlyFileFails",
    } <= ALERTS.keys()
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in ("warning", "critical"), name
        assert alert["annotations"].keys() == {"summary", "description"}, name


def test_the_page_names_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    assert set(re.findall(r"`(Taskq\w+)`", page)) == ALERTS.keys()


def test_the_dashboard_is_whole() -> None:
    """Unique ids, no two panels over each other, a known data source, a legend or a title for each."""
    shown = list(panels())
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"], panel["title"]
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs)
    assert DASHBOARD["uid"] == "taskq"
    assert {v["name"] for v in DASHBOARD["templating"]["list"]} == {"datasource", "queue"}


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    stack = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/taskq.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/taskq.yml").read_text())[
        "providers"
    ]
    mounted = {m.split(":")[0]: m.split(":")[1] for m in stack["grafana"]["volumes"]}
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]
    (scraped,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped["dns_sd_configs"][0]["names"] == ["api"]


def used(expression: str) -> set[str]:
    """Series of ours in an expression."""
    return set(re.findall(r"(?<![\w:])taskq_\w+", expression))


async def told(redis_url: str) -> set[str]:
    """Series that the API declares, as Prometheus would store them."""
    app = create_app(load_settings(redis_url=redis_url))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as http,
    ):
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", answer.text, re.MULTILINE):
        names |= (
            {name} if kind != "histogram" else {f"{name}_{s}" for s in ("bucket", "sum", "count")}
        )
    return names


async def test_rules_and_dashboard_use_only_series_that_there_are(redis_url: str) -> None:
    asked = set()
    for expression in [*(rule["expr"] for rule in RULES), *queries()]:
        asked |= used(expression)
    assert asked
    assert asked - await told(redis_url) == set()
