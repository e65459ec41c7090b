"""The worker of taskq: the process that claims and runs jobs."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("taskq")
except PackageNotFoundError:
    __version__ = "0+unknown"
