"""What a fleet is called at its supervisor."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class ClientName:
    """The name of one connection of a fleet: a fleet whose host dies has another, with the next number."""

    fleet: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0

    def __str__(self) -> str:
        return f"{self.fleet}.{self.number}"

    @property
    def next(self) -> Self:
        """The name of the fleet's next connection."""
        return replace(self, number=self.number + 1)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The names of the fleet's connections before, none of which is left."""
        return tuple(str(replace(self, number=number)) for number in range(self.number))
