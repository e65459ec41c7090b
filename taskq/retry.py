"""When a failed job runs again: exponential back-off with jitter, capped, safe at any attempt."""

import math
import random
from dataclasses import dataclass

from taskq.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before retry n (n = 1 after the first failure).

    ``ceiling(n) = min(cap_seconds, base_seconds * factor ** (n - 1))`` and the delay is drawn evenly
    from ``[ceiling * (1 - jitter), ceiling]``. ``jitter = 1`` is the "full jitter" of Amazon's
    Architecture Blog (Exponential Backoff And Jitter, 2015): it spreads a burst of failures best.
    ``jitter = 0.5`` makes each delay longer than the one before while ``factor >= 2``.

    Raises ``InvalidInput`` for values that are not finite, negative, or a cap below the base.
    """

    base_seconds: float = 1.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        for name in ("base_seconds", "factor", "cap_seconds", "jitter"):
            value = getattr(self, name)
            if (
                not isinstance(value, (int, float))
                or isinstance(value, bool)
                or not math.isfinite(value)
            ):
                raise InvalidInput(
                    f"backoff {name} must be a finite number, not {value!r}", field=name
                )
        if self.base_seconds < 0 or self.cap_seconds < self.base_seconds:
            raise InvalidInput(
                "backoff needs 0 <= base_seconds <= cap_seconds, got "
                f"{self.base_seconds} and {self.cap_seconds}",
                field="base_seconds",
            )
        if self.factor < 1:
            raise InvalidInput(
                f"backoff factor must be at least 1, not {self.factor}", field="factor"
            )
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(f"backoff jitter must be 0 to 1, not {self.jitter}", field="jitter")

    def ceiling(self, failures: int) -> float:
        """Longest delay in seconds after the ``failures``-th failure; never overflows."""
        if self.base_seconds == 0:
            return 0.0
        # In logarithms: base * factor ** n leaves the range of a float long before n does.
        steps = max(0, failures - 1)
        power = math.log(self.base_seconds) + steps * math.log(self.factor)
        if power >= math.log(self.cap_seconds):
            return self.cap_seconds
        if steps * math.log2(self.factor) > 1000:
            return math.exp(power)
        return self.base_seconds * self.factor**steps

    def delay_ms(self, failures: int, rng: random.Random | None = None) -> int:
        """Delay in whole milliseconds after the ``failures``-th failure (>= 1), jitter included."""
        ceiling = self.ceiling(failures)
        draw = rng.random() if rng is not None else random.random()
        return round((ceiling - ceiling * self.jitter * draw) * 1000)
