"""Finds every handler: the modules of this package, then entry points of other packages."""

import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel

import taskq_worker.handlers
from taskq_worker.handlers.base import Handler, HandlerSettings

ENTRY_POINT_GROUP = "taskq.handlers"

logger = logging.getLogger(__name__)

AnyHandler = Handler[Any]


class DuplicateHandler(Exception):
    """Two handlers claim the same job type; which one would run must not depend on luck."""


def discover(settings: HandlerSettings) -> dict[str, AnyHandler]:
    """One instance of each handler by job type, built-ins first.

    A third-party entry point that cannot be loaded is skipped with a warning that names it, and so
    is a built-in whose optional dependency is not installed.

    Raises `DuplicateHandler` when two classes have the same name.
    """
    found: dict[str, AnyHandler] = {}
    for cls in _builtin_classes():
        _add(found, cls.from_settings(settings))
    for point in entry_points(group=ENTRY_POINT_GROUP):
        handler = _third_party(point, settings)
        if handler is not None:
            _add(found, handler)
    return found


def _add(found: dict[str, AnyHandler], handler: AnyHandler) -> None:
    other = found.setdefault(handler.name, handler)
    if type(other) is not type(handler):
        raise DuplicateHandler(
            f"the job type {handler.name!r} has two handlers: "
            f"{_qualified(type(other))} and {_qualified(type(handler))}"
        )


def _builtin_classes() -> Iterator[type[AnyHandler]]:
    package = taskq_worker.handlers
    for module_info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if module_info.name.startswith("_"):
            continue
        module_name = f"{package.__name__}.{module_info.name}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as exc:
            if exc.name is None or exc.name.partition(".")[0] in {"taskq", "taskq_worker"}:
                raise
            logger.warning(
                "built-in handler %s is not served: the package %s is missing, "
                "install taskq[worker]",
                module_info.name,
                exc.name,
            )
            continue
        for _, cls in inspect.getmembers(module, _is_concrete):
            if cls.__module__ == module_name:
                yield _checked(cls)


def _third_party(point: EntryPoint, settings: HandlerSettings) -> AnyHandler | None:
    """The handler behind an entry point, or None after a warning: foreign code may do anything."""
    try:
        return _checked(point.load()).from_settings(settings)
    except (Exception, SystemExit) as exc:
        logger.warning(
            "handler %s (%s, from %s) is not served: %s: %s",
            point.name,
            point.value,
            point.dist.name if point.dist is not None else "an unknown package",
            type(exc).__name__,
            exc,
        )
        return None


def _is_concrete(candidate: object) -> bool:
    return (
        isinstance(candidate, type)
        and issubclass(candidate, Handler)
        and not inspect.isabstract(candidate)
    )


def _checked(cls: Any) -> type[AnyHandler]:
    """`cls` if it is a complete handler; raises TypeError with what is missing."""
    if not _is_concrete(cls):
        raise TypeError(f"{cls!r} is not a concrete subclass of Handler")
    name, model = getattr(cls, "name", None), getattr(cls, "payload_model", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{_qualified(cls)} has no name")
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{_qualified(cls)} has no payload_model")
    if model.model_config.get("extra") != "forbid":
        raise TypeError(f"the payload_model of {_qualified(cls)} must forbid extra fields")
    checked: type[AnyHandler] = cls
    return checked


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
