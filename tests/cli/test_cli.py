"""The command line: its group, its texts and its exit codes."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint, version
from typing import Any

import click
import pytest
from click.testing import CliRunner

from support.cli import COMMAND, NOWHERE, Cli, interruptible, ulid
from taskq.cli import group, main
from taskq.cli.tables import age, dump, plain, table

# --- the group --------------------------------------------------------------------------------------


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"taskq {version('taskq')}\n"
    shown = cli("--help").stdout
    for command in ("submit", "jobs", "queues", "workers", "stats", "doctor", "dead", "worker"):
        assert f"\n  {command} " in shown


def test_help_imports_no_other_package() -> None:
    code = "import sys; from taskq.cli import main; main(['--help'], standalone_mode=False); " + (
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('taskq_api', 'taskq_worker', 'fastapi', 'uvicorn', 'httpx')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("api", "no_such_framework.cli:api", group.ENTRY_POINTS)
    monkeypatch.setattr(group, "_found", lambda: {"api": entry})
    shown = cli("api", code=1).stderr
    assert "taskq api needs the extra: pip install 'taskq[api]'" in shown
    assert "Serve the REST API" in cli("--help").stdout


def test_a_broken_part_of_our_own_is_no_missing_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("api", "taskq.no_such_module:api", group.ENTRY_POINTS)
    monkeypatch.setattr(group, "_found", lambda: {"api": entry})
    assert "cannot be loaded" in cli("api", code=1).stderr


def test_commands_of_other_packages_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("extra", f"{__name__}:extra", group.ENTRY_POINTS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(EntryPoint, "load", lambda self: extra)
    monkeypatch.setattr(group, "_found", lambda: {"extra": entry})
    assert cli("extra").stdout == "done\n"


@click.command()
def extra() -> None:
    click.echo("done")


def test_wrong_use_exits_2(cli: Cli) -> None:
    for args in (
        ["nonsense"],
        ["submit"],
        ["submit", "mail", "{not json"],
        ["submit", "mail", "{}", "--priority", "1000"],
        ["submit", "mail", "{}", "--delay", "nan"],
        ["submit", "mail", "{}", "--delay", "1", "--run-at", "2030-01-01T00:00:00Z"],
        ["submit", "mail", "{}", "--run-at", "2030-01-01T00:00:00"],
        ["submit", "mail", "{}", "--run-at", "tomorrow"],
        ["submit", "two words", "{}"],
        ["submit", "mail", "--redis-url", "http://x"],
        ["jobs", "show", "no id"],
        ["jobs", "list", "--state", "odd"],
        ["jobs", "list", "--limit", "0"],
        ["jobs", "list", "--cursor", "odd"],
        ["jobs", "cancel"],
        ["dead", "retry"],
        ["queues", "set", "default"],
        ["queues", "set", "default", "depth"],
        ["queues", "set", "default", "no_such=1"],
        ["queues", "set", "default", "max_depth=many"],
        ["queues", "purge", "default", "--state", "running"],
        ["stats", "--minutes", "0"],
    ):
        result = cli(*args, code=2)
        assert "rror: " in result.stderr
        assert result.stdout == ""


def test_a_server_that_is_not_there_is_one_line_without_its_password() -> None:
    shown = Cli(NOWHERE)("queues", "list", code=1).stderr
    assert shown.count("\n") == 1
    assert shown.startswith("error: Redis is not reachable")
    assert "redis://app:***@127.0.0.1:1/0" in shown
    assert "--redis-url" in shown
    assert "s3cret" not in shown


def test_a_bug_is_one_line_unless_debugging(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oh\x1b[31m")

    monkeypatch.setattr("taskq.cli.status.run", broken)
    shown = cli("stats", code=1).stderr
    assert "RuntimeError: oh\\x1b[31m" in shown
    result = CliRunner().invoke(main, ["stats"], env={"TASKQ_DEBUG": "1"})
    assert isinstance(result.exception, RuntimeError)


def test_a_wrong_flag_is_blamed_itself(cli: Cli) -> None:
    shown = cli("queues", "list", "--redis-url", "http://x", code=2).stderr
    assert shown.startswith("error: --redis-url (TASKQ_REDIS_URL): unknown kind of URL")
    for command in ("api", "worker"):
        shown = cli(command, "--redis-url=http://x", code=2).stderr
        assert shown.startswith("error: --redis-url (TASKQ_REDIS_URL): unknown kind of URL")
    shown = cli("api", "--port", "-1", code=2).stderr
    assert shown.startswith("error: --port (TASKQ_API_PORT): ")
    assert Cli("http://x")("queues", "list", code=2).stderr.startswith("error: TASKQ_REDIS_URL: ")


def test_an_interrupt_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("taskq.cli.status.run", interrupted)
    assert cli("stats", code=130).output == ""


# --- real processes ---------------------------------------------------------------------------------


def process(url: str, *args: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "TASKQ_REDIS_URL": url, **options}
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_exit_codes_of_a_real_process(redis_url: str) -> None:
    done = process(redis_url, "submit", "mail", '{"a":1}')
    assert (done.returncode, done.stderr) == (0, "")
    assert process(redis_url, "jobs", "show", done.stdout.strip()).returncode == 0
    assert process(redis_url, "jobs", "show", f"default:{ulid()}").returncode == 1
    assert process(redis_url, "jobs", "show").returncode == 2
    away = process(NOWHERE, "queues", "list")
    assert (away.returncode, away.stderr.count("\n"), away.stdout) == (1, 1, "")


def test_a_terminal_that_lacks_letters_gets_escapes(redis_url: str) -> None:
    done = process(redis_url, "submit", "mail", '"漢"')
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    shown = process(redis_url, "jobs", "show", done.stdout.strip(), **latin)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert '"\\u6f22"' in shown.stdout


def test_ctrl_c_ends_a_wait_quietly(redis_url: str) -> None:
    env = {**os.environ, "TASKQ_REDIS_URL": redis_url}
    waiting = interruptible(
        [*COMMAND, "submit", "mail", "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    with waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("default:")
        assert "no live worker" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, err) == (130, "", "")


# --- text -------------------------------------------------------------------------------------------


def test_tables_are_aligned() -> None:
    rows = [("a", 1, None), ("漢字", 1000, "x\x1b[1m")]
    assert table(("NAME", "N", "NOTE"), rows).splitlines() == [
        "NAME     N  NOTE",
        "a        1  -",
        "漢字  1000  x\\x1b[1m",
    ]


def test_text_for_terminals() -> None:
    assert plain("ä\n\x1b\u202e") == "ä\\n\\x1b\\u202e"
    assert json.loads(dump({"a": "\x9b\u202e"})) == {"a": "\x9b\u202e"}
    assert (age(0, 90_000), age(90_000, 0), age(None, 0)) == ("2m", "in 2m", "-")
