"""``taskq api``: serves the REST API."""

import logging

import click

from taskq.log import configure_logging
from taskq.settings import Settings, load_settings
from taskq_api.app import create_app
from taskq_api.auth import needs_keys
from taskq_api.serve import keys_stored, run


def _configure_logging(settings: Settings) -> None:
    configure_logging(settings)
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
    a key: `taskq keys create`, or TASKQ_API_KEYS.
    """
    settings = load_settings(
        api_host=host,
        api_port=port,
        redis_url=redis_url,
        namespace=namespace,
        log_level=log_level,
    )
    _configure_logging(settings)
    app = create_app(settings, keys_stored=needs_keys(settings) and keys_stored(settings))
    run(app, settings)
