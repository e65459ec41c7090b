"""``taskq api``: serves the REST API."""

import json
import logging
import sys
import time
from typing import Any

import click

from taskq.settings import Settings, load_settings
from taskq_api.app import create_app
from taskq_api.serve import run


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _configure_logging(settings: Settings) -> None:
    """One line an event on stderr, in the form of the workers'."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if settings.log_json
        else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s[%(process)d]: %(message)s")
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Its news of every start and stop are ours to tell.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))


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
    settings = load_settings(
        api_host=host,
        api_port=port,
        redis_url=redis_url,
        namespace=namespace,
        log_level=log_level,
    )
    app = create_app(settings)
    _configure_logging(settings)
    run(app, settings)
