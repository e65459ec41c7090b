"""What a supervisor hands to a child, and how a child says by its exit code why it ended."""

from dataclasses import dataclass
from typing import Any, ClassVar

EXIT_CONFIG = 78
"""The application cannot be loaded: starting another child would not help."""
STUBBORN_SECONDS = 5.0
"""How long a run that was asked to stop may go on before the process is given up to end it."""
EXIT_STUBBORN = 75
"""Some run could not be stopped; the others were ended or handed back."""


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What the supervisor hands over, as JSON in an environment variable."""

    app: str | None
    builtins: bool
    queues: list[str]
    slots: int
    max_jobs: int
    settings: dict[str, Any]

    ENVIRONMENT: ClassVar[str] = "_TASKQ_CHILD"
