"""Settings: flag over environment over default, errors of one line, no secret in any text."""

import subprocess
import sys
import traceback

import pytest
from pydantic import SecretStr, ValidationError

from taskq.errors import ConfigError
from taskq.settings import Settings, load_settings, mask_url


def test_defaults() -> None:
    settings = load_settings()
    assert settings.redis_url == "redis://localhost:6379/0"
    assert settings.namespace == "taskq"
    assert (settings.lease_seconds, settings.janitor_seconds, settings.grace_seconds) == (15, 2, 30)
    assert (settings.api_host, settings.api_port) == ("127.0.0.1", 8000)
    assert (settings.start_seconds, settings.health_file) == (3, None)
    assert settings.api_keys is None
    assert not settings.allow_open
    assert not settings.http_call_allow_private
    assert settings.max_body_bytes == 1024 * 1024
    assert (settings.log_level, settings.log_json) == ("info", False)


def test_environment_beats_default_and_flag_beats_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TASKQ_API_PORT", "9000")
    monkeypatch.setenv("TASKQ_LOG_LEVEL", "DEBUG")
    assert load_settings().api_port == 9000
    assert load_settings().log_level == "debug"
    assert load_settings(api_port=9001).api_port == 9001
    assert load_settings(api_port=None).api_port == 9000


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKQ_API_KEYS", "")
    monkeypatch.setenv("TASKQ_API_PORT", "")
    assert load_settings().api_keys is None
    assert load_settings().api_port == 8000


def test_foreign_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKQ_SOMETHING_ELSE", "1")
    load_settings()


def test_nothing_is_read_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKQ_API_PORT", "wrong")
    subprocess.run([sys.executable, "-c", "import taskq.settings"], check=True)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings().api_port = 1


def test_an_unknown_override_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="redis_uri"):
        load_settings(redis_uri="redis://localhost")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_SECONDS", "0.9"),
        ("LEASE_SECONDS", "3601"),
        ("LEASE_SECONDS", "nan"),
        ("JANITOR_SECONDS", "0"),
        ("GRACE_SECONDS", "-1"),
        ("GRACE_SECONDS", "inf"),
        ("API_PORT", "65536"),
        ("API_PORT", "http"),
        ("LOG_LEVEL", "loud"),
        ("LOG_JSON", "perhaps"),
        ("NAMESPACE", "a{b}"),
        ("NAMESPACE", "a:b"),
        ("MAX_BODY_BYTES", "0"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TASKQ_{name}", value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    text = str(caught.value)
    assert text.startswith(f"TASKQ_{name}: ")
    assert value in text
    assert "\n" not in text
    assert caught.value.code == "config"


def test_every_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKQ_API_PORT", "x")
    monkeypatch.setenv("TASKQ_LEASE_SECONDS", "y")
    with pytest.raises(ConfigError, match=r"TASKQ_LEASE_SECONDS: .*; TASKQ_API_PORT: "):
        load_settings()


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379",
        "redis://user:p%40ss@db.example:6380/3?socket_timeout=2",
        "redis://[::1]:6379/0",
        "rediss://db.example/0",
        "unix:///run/valkey.sock",
        "unix:///run/valkey.sock?db=2",
        "unix://user:secret@/run/valkey.sock",
    ],
)
def test_good_redis_urls(url: str) -> None:
    assert load_settings(redis_url=url).redis_url == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("localhost:6379", "unknown kind"),
        ("http://localhost", "unknown kind"),
        ("REDIS://localhost", "unknown kind"),
        ("redis://", "missing"),
        ("redis://localhost:0", "missing"),
        ("redis://localhost:port", "cannot be read"),
        ("redis://localhost:99999", "cannot be read"),
        ("redis://localhost/first", "number of a database"),
        ("redis://localhost/-1", "number of a database"),
        ("unix://", "path of the socket"),
        ("unix://run", "path of the socket"),
        ("redis+sentinel://a,b/main", r"redis\+sentinel:// is not supported yet"),
        ("redis+cluster://a", r"redis\+cluster:// is not supported yet"),
    ],
)
def test_bad_redis_urls(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^TASKQ_REDIS_URL: .*{reason}"):
        load_settings(redis_url=url)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:s3cret@db:6379/0", "redis://:***@db:6379/0"),
        ("redis://app:s3cret@db:6379/0", "redis://app:***@db:6379/0"),
        ("redis://s3cret@db", "redis://***@db"),
        ("redis://app:s3@cret@db", "redis://app:***@db"),
        ("redis://app:s3/cret@db/0", "redis://app:***@db/0"),
        ("redis://app:s3?cret@db/0", "redis://app:***@db/0"),
        ("redis://app:s3://cret@db/0", "redis://app:***@db/0"),
        ("app:s3cret@db", "app:***@db"),
        ("unix://:s3cret@/run/x.sock", "unix://:***@/run/x.sock"),
        ("unix:///x.sock?db=0&password=s3cret&a=1", "unix:///x.sock?db=0&password=***&a=1"),
        ("redis://db?ssl_password=s3cret", "redis://db?ssl_password=***"),
        ("redis+sentinel://:s3cret@a:1,b:2/main", "redis+sentinel://:***@a:1,b:2/main"),
    ],
)
def test_mask_url(url: str, masked: str) -> None:
    """F86: passwords of any URL, also of one that cannot be read."""
    assert mask_url(url) == masked


def test_masked_holds_every_setting_and_no_secret() -> None:
    """F86: what is shown of the settings."""
    settings = load_settings(redis_url="redis://:s3cret@db/0", api_keys=SecretStr("k3y"))
    masked = settings.masked()
    assert masked.keys() == Settings.model_fields.keys()
    assert masked["redis_url"] == "redis://:***@db/0"
    assert masked["api_keys"] == "***"
    assert "k3y" not in repr(settings)
    assert load_settings().masked()["api_keys"] is None


def test_no_secret_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """F86: what is said of a wrong one."""
    monkeypatch.setenv("TASKQ_REDIS_URL", "redis://:s3cret@db:port/0")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ValidationError) as raw:
        Settings()
    assert "s3cret" not in str(raw.value)


def test_no_secret_in_what_python_shows_of_settings() -> None:
    url, keys = "redis://app:sesame-1@db:6379/0?password=sesame-2", "sesame-3,sesame-4"
    settings = load_settings(redis_url=url, api_keys=keys, cors_origins="https://a.example.com")
    for shown in (repr(settings), str(settings), f"{settings!r}", str([settings])):
        assert "sesame" not in shown
        assert "https://a.example.com" in shown
    assert settings.origins == ("https://a.example.com",)
