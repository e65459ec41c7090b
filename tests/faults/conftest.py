"""Runs scenarios beside each other: most of a scenario is waiting for a lease, a janitor or an outage.

A test marked ``beside`` is a scenario with a ``Place`` of its own. The first of them that pytest comes to
runs all that were selected, several at a time; with xdist the processes share the work. Every test then
reports what its own scenario did. Tests marked ``slow_fault`` run only when they are asked for by -m.
"""

import faulthandler
import os
import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults import Place

AT_ONCE = 7
LONGEST = 600.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow_fault" in (config.option.markexpr or ""):
        return
    slow = [item for item in items if item.get_closest_marker("slow_fault")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place | None]:
    """The scenario's server and processes; a scenario that runs beside others is given its own."""
    if request.node.get_closest_marker("beside"):
        yield None
        return
    place = Place(tmp_path, request.node.name)
    try:
        yield place
    finally:
        place.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("beside") is None:
        return None
    folder = _shared_folder(pyfuncitem)
    _run_all(pyfuncitem.session, folder)
    outcome = _outcome(folder, pyfuncitem)
    for title, text in outcome["sections"]:
        pyfuncitem.add_report_section("call", title, text)
    if outcome["error"]:
        raise AssertionError(outcome["error"])
    return True


def _shared_folder(item: pytest.Item) -> Path:
    base: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    folder = base / "faults"
    folder.mkdir(exist_ok=True)
    return folder


def _name(item: pytest.Item) -> str:
    return "".join(c if c.isalnum() else "_" for c in item.name)


def _run_all(session: pytest.Session, folder: Path) -> None:
    """Takes scenarios that no other process has taken, until none is left."""
    # All of them are one test to pytest, whose dump of what hangs can crash a process with so many threads.
    faulthandler.cancel_dump_traceback_later()
    items = [item for item in session.items if item.get_closest_marker("beside")]
    # The longest first, so that none stands alone at the end.
    items.sort(key=lambda item: -(item.get_closest_marker("beside").kwargs.get("seconds", 10)))
    lock = threading.Lock()

    def take() -> Any:
        with lock:
            while items:
                item = items.pop(0)
                try:
                    (folder / _name(item)).mkdir()
                except FileExistsError:
                    continue
                return item
        return None

    def run() -> None:
        while (item := take()) is not None:
            _run(item, folder / _name(item))

    threads = [threading.Thread(target=run, name=f"scenario-{i}") for i in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run(item: Any, folder: Path) -> None:
    options = item.get_closest_marker("beside").kwargs.get("server", {})
    outcome: dict[str, Any] = {"error": "", "sections": []}
    began = time.monotonic()
    place = None
    try:
        place = Place(folder, item.name, **options)
        place.listen()
        params = item.callspec.params if hasattr(item, "callspec") else {}
        item.obj(place=place, **params)
    except BaseException:
        outcome["error"] = traceback.format_exc()
        for process in place.processes if place else []:
            outcome["sections"].append((f"log of {process.log.name}", process.text()[-3000:]))
    try:
        if place is not None:
            outcome["sections"].append(("figures", "\n".join(place.notes)))
            place.close()
    except BaseException:
        outcome["error"] = outcome["error"] or traceback.format_exc()
    outcome["seconds"] = time.monotonic() - began
    if path := os.environ.get("FAULT_REPORT"):
        with open(path, "a") as report:
            word = "FAILED" if outcome["error"] else "ok"
            notes = place.notes if place and place.notes else ["-"]
            took = f"{outcome['seconds']:.1f}s"
            report.writelines(f"{item.name} {took} {word}: {note}\n" for note in notes)
    part = folder / "outcome.part"
    part.write_bytes(pickle.dumps(outcome))
    part.rename(folder / "outcome")


def _outcome(folder: Path, item: pytest.Item) -> dict[str, Any]:
    path = folder / _name(item) / "outcome"
    end = time.monotonic() + LONGEST
    while not path.exists():
        assert time.monotonic() < end, f"no outcome of {item.name}"
        time.sleep(0.05)
    outcome: dict[str, Any] = pickle.loads(path.read_bytes())
    return outcome
