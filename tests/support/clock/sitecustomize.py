"""In front of PYTHONPATH: a process and its children whose clocks are wrong by FAULT_CLOCK_OFFSET seconds."""

import os
import time

_OFFSET = float(os.environ.get("FAULT_CLOCK_OFFSET", "0"))
if _OFFSET:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _OFFSET
    time.time_ns = lambda: _time_ns() + int(_OFFSET * 1e9)
