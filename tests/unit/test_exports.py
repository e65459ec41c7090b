"""The public names: there, sorted, documented."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import taskq

MODULES = [m.name for m in pkgutil.walk_packages(taskq.__path__, "taskq.")]
PUBLIC = sorted(taskq.__all__)


def test_all_is_sorted_and_there() -> None:
    assert taskq.__all__ == PUBLIC
    assert all(hasattr(taskq, name) for name in PUBLIC)
    imported = {
        name
        for name, value in vars(taskq).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert imported == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(taskq, name)
    if not inspect.isclass(thing):
        return
    assert inspect.getdoc(thing), name
    for member, value in vars(thing).items():
        if not member.startswith("_") and (
            inspect.isfunction(value) or isinstance(value, property)
        ):
            assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize("name", ["taskq", *MODULES])
def test_every_module_says_what_it_does(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, name
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), f"{name}.{exported}"


def test_importing_reads_no_settings() -> None:
    """They are read when they are first asked for."""
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *MODULES],
        env={**os.environ, "TASKQ_LEASE_SECONDS": "nonsense", "TASKQ_REDIS_URL": "nonsense"},
        check=True,
    )


def test_the_package_is_typed() -> None:
    assert (Path(taskq.__path__[0]) / "py.typed").exists()
