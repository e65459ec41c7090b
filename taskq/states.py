"""The states of a job and every legal move between them: the one table that all else is checked against.

``python -m taskq.states`` prints it as a diagram. The Lua scripts' headers, the REST enum and the
matrix test (every script from every state) are compared with this module.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a job is, as stored in its hash and answered everywhere."""

    SCHEDULED = "scheduled"
    """Waits for its due time."""
    BLOCKED = "blocked"
    """Waits for other jobs."""
    QUEUED = "queued"
    """Stands in its type's line and may be claimed."""
    RUNNING = "running"
    """Held by exactly one worker, under a lease and a fence."""
    RETRYING = "retrying"
    """Failed, waits for its back-off to end."""
    SUCCEEDED = "succeeded"
    """Ended well; the result is kept as long as retention says."""
    FAILED = "failed"
    """Ended badly for good (a dead letter); an explicit retry may queue it again."""
    CANCELLED = "cancelled"
    """Ended because somebody asked for it (cancel or purge)."""


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
"""States that end a job; each is also the name of the sorted set that holds it."""

WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.RETRYING})
"""States in which a job may be edited, purged or expire."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One script: its name (the ``.lua`` file's too) and the moves it may make.

    ``None`` stands for "not stored": before an enqueue, after a deletion.
    """

    name: str
    moves: frozenset[tuple[State | None, State | None]]

    @property
    def sources(self) -> frozenset[State | None]:
        return frozenset(source for source, _ in self.moves)

    @property
    def targets(self) -> frozenset[State | None]:
        return frozenset(target for _, target in self.moves)

    def allows(self, before: State | None, after: State | None) -> bool:
        """Whether the script may take a job from ``before`` to ``after`` (staying put always may)."""
        return before == after or (before, after) in self.moves


def _transition(
    name: str, *rows: tuple[tuple[State | None, ...], tuple[State | None, ...]]
) -> Transition:
    return Transition(
        name, frozenset((s, t) for sources, targets in rows for s in sources for t in targets)
    )


_S, _Q, _RUN, _RET = State.SCHEDULED, State.QUEUED, State.RUNNING, State.RETRYING
_OK, _FAIL, _CAN = State.SUCCEEDED, State.FAILED, State.CANCELLED
_ENDED: tuple[State, ...] = (_OK, _FAIL, _CAN)
_WAIT: tuple[State, ...] = (_S, _Q, _RET)

TRANSITIONS: dict[str, Transition] = {
    t.name: t
    for t in (
        _transition("enqueue", ((None,), (_Q, _S))),
        _transition("promote", ((_S, _RET), (_Q,))),
        # A claim first promotes what is due, and ends what has expired instead of running it.
        _transition(
            "claim", ((_Q, _S, _RET), (_RUN,)), ((_S, _RET), (_Q,)), ((_Q, _S, _RET), (_FAIL,))
        ),
        _transition("finish", ((_RUN,), (_OK,)), (_ENDED, (None,))),
        _transition("fail", ((_RUN,), (_RET, _FAIL, _CAN))),
        _transition("crash", ((_RUN,), (_Q, _FAIL, _CAN))),
        _transition("release", ((_RUN,), (_Q, _CAN))),
        _transition("snooze", ((_RUN,), (_S, _CAN))),
        _transition("reap", ((_RUN,), (_Q, _FAIL, _CAN))),
        _transition("reconcile", ((_RUN,), (_Q, _CAN))),
        # A run that nobody can report any more; all else that doctor puts right stays in its state.
        _transition("repair", ((_RUN,), (_Q, _FAIL, _CAN))),
        _transition("cancel", ((*_WAIT, State.BLOCKED), (_CAN,))),
        _transition("retry", ((_FAIL,), (_Q,))),
        _transition("edit", ((_S, _Q, _RET), (_S, _Q))),
        _transition("purge", (_WAIT, (_CAN,))),
        _transition("expire", (_WAIT, (_FAIL,)), (_ENDED, (None,))),
        _transition("trim", (_ENDED, (None,))),
        _transition("delete", (_ENDED, (None,))),
        # These write about jobs and queues but move no job.
        _transition("progress"),
        _transition("log"),
        _transition("watch"),
        _transition("heartbeat"),
        _transition("lease"),
        _transition("settle"),
        _transition("overdue"),
        _transition("configure"),
        _transition("listen"),
        _transition("rollup"),
        _transition("bulk_start"),
        _transition("bulk_take"),
        _transition("bulk_step"),
        _transition("bulk_stop"),
    )
}
"""Every script that writes, by name."""


def diagram() -> str:
    """The table as text, one move a line: ``source -> target: scripts``."""
    rows: dict[tuple[str, str], list[str]] = {}
    for transition in TRANSITIONS.values():
        for source, target in transition.moves:
            rows.setdefault((source or "(new)", target or "(gone)"), []).append(transition.name)
    return "\n".join(
        f"{s:>9} -> {t:<9} {', '.join(names)}" for (s, t), names in sorted(rows.items())
    )


if __name__ == "__main__":
    print(diagram())
