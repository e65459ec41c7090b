"""Ties a process that ``taskq dev`` starts to the life of its starter."""

import ctypes
import os
import signal
import sys

VARIABLE = "_TASKQ_PARENT"
_PR_SET_PDEATHSIG = 1


def follow_parent() -> None:
    """Where the starter asked for it: get SIGTERM when it dies (Linux), however it dies.

    Without the wish in the environment this does nothing; elsewhere than on Linux too.
    """
    parent = os.environ.pop(VARIABLE, None)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit("the process that started this one is gone")
