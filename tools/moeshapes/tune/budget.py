"""The time that tuning may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


class BudgetSpentError(Exception):
    """No time is left."""


@dataclass
class Budget:
    """`seconds` from when it is made, None for as long as it takes."""

    seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.now()

    @property
    def is_spent(self) -> bool:
        return self.seconds is not None and self.now() - self.began >= self.seconds

    def check(self) -> None:
        """Raises BudgetSpentError where no time is left."""
        if self.is_spent:
            raise BudgetSpentError
