"""Age-adjusted priority: the formula that orders a queue, and its bound.

``score = eligible_at_ms - priority * aging_ms``; the lowest score runs first. All jobs age alike, so
the order of two waiting jobs never changes and nothing is ever rescored. The Lua scripts compute it
(``taskq/lua/_lines.lua``); this module states it for tests, docs and "why is my job waiting".
"""

PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT = -100, 100, 0
AGING_MS_DEFAULT = 10_000
AGING_MS_MAX = 86_400_000
"""At most a day a point, so that |score| stays under 2**42, where a double still tells 1/2048 ms apart."""
TICK = 1 / 2048
"""Distance in ms of two jobs that one call submits: keeps them first in, first out."""


def score(eligible_at_ms: float, priority: int, aging_ms: int) -> float:
    """Place in line; lower runs sooner."""
    return eligible_at_ms - priority * aging_ms


def overtaking_window_ms(priority: int, other: int, aging_ms: int) -> int:
    """How much later a job of priority ``other`` may become eligible and still go first, in ms.

    Zero or less: it can never overtake.
    """
    return (other - priority) * aging_ms


def effective_priority(priority: int, waited_ms: float, aging_ms: int) -> float:
    """Priority with the points that waiting has earned, for people to read."""
    return float(priority) if aging_ms == 0 else priority + waited_ms / aging_ms
