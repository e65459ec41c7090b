"""``taskq api``: serves the REST API."""

import json
import logging
import time
from typing import Any

import click

from taskq.errors import TaskqError
from taskq.settings import Settings, load_settings
from taskq_api.app import create_app
from taskq_api.serve import run


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log(settings: Settings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonLines()
        if settings.log_json
        else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.  [default: 8000]")
@click.option("--redis-url", help="Redis or Valkey server.  [default: redis://localhost:6379/0]")
@click.option("--namespace", help="First part of every key.  [default: taskq]")
@click.option("--log-level", help="debug, info, warning, error or critical.  [default: info]")
def api(
    host: str | None,
    port: int | None,
    redis_url: str | None,
    namespace: str | None,
    log_level: str | None,
) -> None:
    """Serve the REST API.

    A flag beats its environment variable (TASKQ_API_HOST, TASKQ_API_PORT, TASKQ_REDIS_URL,
    TASKQ_NAMESPACE, TASKQ_LOG_LEVEL), which beats the default. Other addresses than loopback need
    TASKQ_API_KEYS.
    """
    try:
        settings = load_settings(
            api_host=host,
            api_port=port,
            redis_url=redis_url,
            namespace=namespace,
            log_level=log_level,
        )
        app = create_app(settings)
        _log(settings)
        run(app, settings)
    except TaskqError as error:
        raise click.ClickException(str(error)) from None
