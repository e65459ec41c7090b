"""Finds the application that a command names: ``package.module:attribute``."""

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from taskq.app import TaskQ
from taskq.context import Context
from taskq.errors import ConfigError
from taskq.retry import Backoff
from taskq.settings import Settings
from taskq.tasks import TaskOptions
from taskq_worker.handlers import Handler, HandlerSettings, discover

logger = logging.getLogger("taskq.worker")


def load_app(path: str | None, settings: Settings, *, builtins: bool = False) -> TaskQ:
    """The application at ``path``, or one with the built-in handlers when there is none.

    ``builtins`` adds them to an application too.

    Raises ``ConfigError`` with one line that says what is wrong with the path or its import.
    """
    app = TaskQ(settings=settings) if path is None else _import(path)
    if builtins or path is None:
        add_builtins(app, settings)
    if not app.tasks:
        raise ConfigError(
            f"{path}: the application has no tasks; decorate functions with @app.task"
        )
    app.use_settings(settings)
    return app


def _import(path: str) -> TaskQ:
    module_name, _, attribute = path.partition(":")
    module_name = module_name.removesuffix(".py")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"-A {path!r} must look like package.module:app")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"-A {path}: there is no module {error.name!r}; start from the folder that holds it"
            ) from None
        raise ConfigError(
            f"-A {path}: the module needs {error.name!r}, which is not installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"-A {path}: importing {module_name!r} failed: {type(error).__name__}: {error}"
            f"{_where(error)}"
        ) from error
    try:
        app = getattr(module, attribute)
    except AttributeError:
        names = [name for name, value in vars(module).items() if isinstance(value, TaskQ)]
        hint = f"; it has {module_name}:{names[0]}" if names else ""
        raise ConfigError(f"-A {path}: the module has no {attribute!r}{hint}") from None
    if not isinstance(app, TaskQ):
        raise ConfigError(f"-A {path}: is a {type(app).__name__}, not a taskq.TaskQ")
    return app


def _where(error: BaseException) -> str:
    """``" (file.py:12)"``: the innermost line that is no part of Python's own import machinery."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def add_builtins(app: TaskQ, settings: Settings) -> None:
    """Registers the built-in handlers with ``app``, names that it has taken left alone."""
    handler_settings = HandlerSettings(http_allow_private=settings.http_call_allow_private)
    for name, handler in discover(handler_settings).items():
        if name not in app.tasks:
            task = app.register(_as_function(handler), name, _options(handler))
            task.payload_schema = handler.payload_model.model_json_schema


def _options(handler: Handler[Any]) -> TaskOptions:
    options: dict[str, Any] = {
        "max_attempts": handler.max_attempts,
        "backoff": Backoff(*handler.backoff),
    }
    if handler.timeout_seconds is not None:
        options["timeout"] = handler.timeout_seconds
    return TaskOptions(**options)


def _as_function(handler: Handler[Any]) -> Any:
    async def run(ctx: Context, **payload: Any) -> Any:
        return await handler.run(handler.parse(payload), ctx)

    run.__name__ = handler.name
    run.__doc__ = handler.__doc__
    return run


def queues_of(app: TaskQ) -> list[str]:
    """The queues that the application's tasks name."""
    return sorted({task.defaults.queue for task in app.tasks.values()})


def schemas_of(app: TaskQ) -> Mapping[str, Any]:
    """Per job type what workers publish: its JSON Schema, queue, description and limits."""
    return {
        name: {
            "schema": task.payload_schema(),
            "queue": task.defaults.queue,
            "description": (task.__doc__ or "").strip().split("\n\n")[0],
            "max_attempts": task.defaults.max_attempts,
            "timeout": task.defaults.timeout,
        }
        for name, task in app.tasks.items()
    }
