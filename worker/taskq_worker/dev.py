"""``taskq dev``: a server, the API and a worker on this machine, in the foreground, with one command."""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

import click
import redis

from taskq import lifeline
from taskq.connection import connect
from taskq.embedded import EmbeddedServer
from taskq.errors import ConfigError, TaskqError
from taskq.keys import Keys
from taskq.settings import load_settings

START_SECONDS = 30.0
GRACE_SECONDS = 2.0
STOP_SECONDS = 4.0
_COMMAND = "from taskq.cli import main; main()"


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Stop(BaseException):
    """A signal asked to end. Like KeyboardInterrupt it passes by what catches errors."""


@click.command()
@click.option(
    "-A",
    "--app",
    metavar="MODULE:APP",
    help="Your application, served besides print and http_call.",
)
@click.option("--host", help="Address of the API.  [default: TASKQ_API_HOST or 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the API.  [default: TASKQ_API_PORT or 8000]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".taskq"),
    show_default=True,
    help="Where the jobs are kept.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Jobs at once in each process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Worker processes.",
)
def dev(
    app: str | None,
    host: str | None,
    port: int | None,
    directory: Path,
    concurrency: int,
    processes: int,
) -> None:
    """Run everything here: an embedded server, the API and a worker. Ctrl-C stops it, jobs are kept."""
    settings = load_settings(api_host=host, api_port=port)
    host, port = settings.api_host, settings.api_port
    _check_port(host, port, directory)
    _make_private(directory)
    server = EmbeddedServer(directory, persistent=True)
    parts: list[tuple[str, subprocess.Popen[bytes]]] = []
    failure: TaskqError | None = None
    try:
        for number in SIGNALS:
            signal.signal(number, _raise_stop)
        server.start()
        environment = {
            **os.environ,
            "TASKQ_REDIS_URL": server.url,
            "TASKQ_GRACE_SECONDS": str(GRACE_SECONDS),
        }
        worker = ["worker", "--builtins", "-c", str(concurrency), "--processes", str(processes)]
        if app:
            worker += ["-A", app]
        parts.append(("api", _start(["api", "--host", host, "--port", str(port)], environment)))
        parts.append(("worker", _start(worker, environment)))
        _wait_until_up(host, port, parts, server, Keys(settings.namespace))
        _greet(host, port, directory, server)
        _watch(parts, server)
    except _Stop:
        click.echo("\nstopping ...", err=True)
    except TaskqError as error:
        failure = error
        if parts:  # what they say while they end comes after what it comes from
            click.echo(f"\n{error}\nstopping ...", err=True)
    finally:
        _ignore_signals()
        _stop(parts)
        with contextlib.suppress(TaskqError):
            server.stop(timeout=2.0)
    if failure is not None:
        raise failure


def _raise_stop(number: int, frame: FrameType | None) -> None:
    _ignore_signals()  # one is enough: a second must not interrupt the stopping
    raise _Stop


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _make_private(directory: Path) -> None:
    """Makes the directory of the jobs, for this user alone: payloads may be secret."""
    if directory.exists():
        # One that an older version made is closed; one that is more than ours is left as it is.
        if (directory / "server.lock").exists():
            directory.chmod(0o700)
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _command() -> str:
    """How ``taskq`` is called here: by its name where that finds it, else as this process was started."""
    started = Path(sys.argv[0])
    if not started.is_file():
        return "taskq"
    found = shutil.which("taskq")
    if found is not None and Path(found).samefile(started):
        return "taskq"
    return shlex.quote(str(started))


def _check_port(host: str, port: int, directory: Path) -> None:
    """Raises ``TaskqError`` for a port that is taken; if by another dev over the same jobs, it says so."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _in_use(directory):
                raise TaskqError(
                    f"taskq dev runs over {directory} already: use that one, stop it, "
                    "or choose another --dir and --port"
                ) from None
            raise TaskqError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
            ) from None


def _in_use(directory: Path) -> bool:
    """Whether a server holds the lock of this directory."""
    try:
        lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A part in a process group of its own, so that a Ctrl-C in the terminal comes through us alone."""
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        env={**environment, lifeline.VARIABLE: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def _wait_until_up(
    host: str,
    port: int,
    parts: list[tuple[str, subprocess.Popen[bytes]]],
    server: EmbeddedServer,
    keys: Keys,
) -> None:
    """Waits until the API answers and a worker is known. Raises ``TaskqError`` when a part ends."""
    until = time.monotonic() + START_SECONDS
    with connect(server.url) as client:
        while time.monotonic() < until:
            _check_parts(parts, server)
            # Not asked of the API: it may want a key.
            with contextlib.suppress(OSError, redis.RedisError):
                if _status(host, port, "/health") == 200 and client.zcard(keys.workers):
                    return
            time.sleep(0.05)
    raise ConfigError(f"API and worker were not up after {START_SECONDS:.0f} s; see the log above")


def _status(host: str, port: int, path: str) -> int:
    address = f"[{host}]" if ":" in host else host.replace("0.0.0.0", "127.0.0.1")
    try:
        with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _check_parts(parts: list[tuple[str, subprocess.Popen[bytes]]], server: EmbeddedServer) -> None:
    # First, since the others may end because of it.
    if not server.running:
        raise TaskqError(f"the embedded server ended; see {server.data_dir / 'server.log'}")
    for name, part in parts:
        if part.poll() is not None:
            raise ConfigError(
                f"the {name} ended with exit code {part.returncode}; see the lines above"
            )


def _greet(host: str, port: int, directory: Path, server: EmbeddedServer) -> None:
    url = f"http://{'localhost' if host in ('127.0.0.1', '0.0.0.0') else host}:{port}"
    socket_path = server.url.removeprefix("unix://").partition("?")[0]
    closed = _status(host, port, "/queues") == 401
    key = ' -H "Authorization: Bearer <key>"' if closed else ""
    wanted = "\nThe API wants a key: there are some (`taskq keys list`).\n" if closed else ""
    click.echo(
        f"""
taskq is up.  API {url}  (its pages: {url}/docs)   jobs are kept in {directory}/
{wanted}
Try, in another terminal:

  curl -X POST {url}/jobs{key} -H "Content-Type: application/json" \\
    -d '{{"job_type":"print","priority":10,"payload":{{"message":"Hello from scheduler"}}}}'

  curl{key} {url}/jobs/<id>        the id is in the first answer
  curl{key} {url}/queues           what waits, runs and failed

  TASKQ_REDIS_URL=unix://{socket_path} {_command()} jobs list
  redis-cli -s {socket_path} keys '*'        everything is readable there

Ctrl-C stops it; the jobs stay.
"""
    )
    sys.stdout.flush()


def _watch(parts: list[tuple[str, subprocess.Popen[bytes]]], server: EmbeddedServer) -> None:
    while True:
        _check_parts(parts, server)
        time.sleep(0.2)


def _stop(parts: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
    """Asks all parts to end, waits, and kills what does not."""
    for _, part in parts:
        with contextlib.suppress(ProcessLookupError):
            part.send_signal(signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    for _, part in parts:
        try:
            part.wait(max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()
