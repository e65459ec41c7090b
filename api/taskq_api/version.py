"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("taskq")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"


VERSION = _version()
