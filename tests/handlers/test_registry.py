"""Which handlers are served."""

import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict

import taskq_worker.handlers as handlers_package
from taskq_worker.handlers import (
    DuplicateHandler,
    Handler,
    HandlerContext,
    HandlerSettings,
    discover,
    registry,
)
from taskq_worker.handlers.print import PrintHandler

# --- registry ------------------------------------------------------------------------------------


class _Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ThirdParty(Handler[_Empty]):
    name: ClassVar[str] = "third_party"
    payload_model = _Empty

    async def run(self, payload: _Empty, ctx: HandlerContext) -> None:
        return None


class SecondPrint(ThirdParty):
    name: ClassVar[str] = "print"


class Nameless(Handler[_Empty]):
    payload_model = _Empty

    async def run(self, payload: _Empty, ctx: HandlerContext) -> None:
        return None


class Broken(ThirdParty):
    name: ClassVar[str] = "broken"

    @classmethod
    def from_settings(cls, settings: HandlerSettings) -> "Broken":
        raise SystemExit("no licence")


def points(monkeypatch: pytest.MonkeyPatch, **named: object) -> None:
    module = types.ModuleType("taskq_test_plugin")
    monkeypatch.setitem(sys.modules, "taskq_test_plugin", module)
    for name, value in named.items():
        setattr(module, name, value)
    found = [
        EntryPoint(name, f"taskq_test_plugin:{name}", registry.ENTRY_POINT_GROUP) for name in named
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)


def test_builtins_are_found() -> None:
    found = discover(HandlerSettings())
    assert {"print", "http_call"} <= found.keys()
    assert isinstance(found["print"], PrintHandler)
    assert found["http_call"].max_attempts == 5
    assert found["http_call"].backoff == (1.0, 2.0, 60.0, 0.5)


def test_a_builtin_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(str(sys.modules[PrintHandler.__module__].__file__)).read_text(encoding="utf-8")
    (tmp_path / "shout.py").write_text(source.replace('"print"', '"shout"'), encoding="utf-8")
    monkeypatch.setattr(handlers_package, "__path__", [*handlers_package.__path__, str(tmp_path)])
    try:
        assert "shout" in discover(HandlerSettings())
    finally:
        sys.modules.pop("taskq_worker.handlers.shout", None)


def test_entry_points_are_found_and_settings_reach_them(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, ThirdParty=ThirdParty)
    assert isinstance(discover(HandlerSettings())["third_party"], ThirdParty)


def test_broken_entry_points_leave_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points(monkeypatch, Broken=Broken, Nameless=Nameless, NotOne=int, ThirdParty=ThirdParty)
    delattr(sys.modules["taskq_test_plugin"], "Nameless")
    found = discover(HandlerSettings())
    assert {"print", "http_call", "third_party"} <= found.keys()
    for name in ("Broken", "Nameless", "NotOne"):
        assert f"handler {name} (taskq_test_plugin:{name}" in caplog.text


@pytest.mark.parametrize("cls", [Nameless, Handler, 5])
def test_incomplete_handlers_are_not_served(
    cls: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points(monkeypatch, Odd=cls)
    discover(HandlerSettings())
    assert "handler Odd" in caplog.text


def test_two_handlers_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, SecondPrint=SecondPrint)
    with pytest.raises(DuplicateHandler, match=r"'print'.*PrintHandler.*SecondPrint"):
        discover(HandlerSettings())


def test_the_same_class_twice_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    points(monkeypatch, A=ThirdParty, B=ThirdParty)
    assert "third_party" in discover(HandlerSettings())


def test_missing_optional_package_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "taskq_worker.handlers.http_call")
    monkeypatch.setitem(sys.modules, "httpcore", None)
    found = discover(HandlerSettings())
    assert "print" in found
    assert "http_call" not in found
    assert "the package httpcore is missing" in caplog.text
