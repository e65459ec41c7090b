"""``durable`` submissions: answered only when the job is on disk.

With ``appendfsync always`` the server writes and syncs its append-only file before it sends the replies of
that turn of its loop, so an answer to the submission itself is the proof, also for a repeat that finds the
job stored already: what it read was synced before. Nothing less proves it: ``WAITAOF`` would, but under
``everysec`` some builds answer it without a sync, the embedded Valkey among them. So every durable submission
asks for the settings first, as an operator may change them at any time, and is refused, with nothing stored,
where they do not hold or cannot be read.
"""

from collections.abc import Mapping
from typing import Any

from taskq.errors import DurableUnsupported
from taskq.store import AsyncStore, Store

NEEDED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
_ASK = ("CONFIG", "GET", *NEEDED)


async def require_durable(store: AsyncStore) -> None:
    """Raises ``DurableUnsupported`` unless an answer of the server means that a write is on disk."""
    (answer,) = await store.pipeline([_ASK])
    _judge(answer)


def require_durable_sync(store: Store) -> None:
    """The same over a sync connection."""
    (answer,) = store.pipeline([_ASK])
    _judge(answer)


def _judge(answer: Any) -> None:
    if not isinstance(answer, (Mapping, list)):
        raise DurableUnsupported(
            "durable cannot be promised: this server does not tell its settings (CONFIG GET is refused)"
        )
    texts = [text.decode() for text in _flat(answer)]
    has = dict(zip(texts[::2], texts[1::2], strict=True))
    wrong = [f"{name} {need}" for name, need in NEEDED.items() if has.get(name) != need]
    if wrong:
        raise DurableUnsupported(
            f"durable cannot be promised: the server needs `{'`, `'.join(wrong)}`; "
            "nothing was stored. Set it, or submit without durable"
        )


def _flat(answer: "Mapping[bytes, bytes] | list[bytes]") -> list[bytes]:
    if isinstance(answer, Mapping):
        return [text for pair in answer.items() for text in pair]
    return list(answer)
