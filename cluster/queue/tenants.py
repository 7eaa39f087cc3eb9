"""The tenants of a queue (docs/queue.md): their quotas and prices in the queue's policy, and their tokens.

The store keeps the policy, so that all programs that use the queue see the same one. It keeps only the hash of a token.
"""

import hashlib
import secrets
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import QueueUnavailable, UsageError
from ..toml_file import load_model
from .values import TenantUse, Usage

PRIORITY_MAX: Final = 1_000_000
_HOUR_S: Final = 3600
_GIB: Final = 1 << 30
_TOKEN_BYTES: Final = 32
_MARK: Final = "cfq-"  # every token begins with this
_HELP: Final = "configs/queue.toml lists every key of a queue's policy."
_CORRECT: Final = "The setting queue_token names a file with the token: `codecfleet config show` tells where it is set."
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Amount = Annotated[float, Field(ge=0, le=1_000_000)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TenantQuota(_Table):
    """One tenant's share and limits."""

    share: Annotated[float, Field(ge=0.001, le=1_000_000)] = 1.0  # the tenant's weight against other tenants
    queued_max: Count = 10_000  # the most jobs that are queued or running
    running_max: Count = 1_000_000  # the most jobs that run at the same time
    priority_max: Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = PRIORITY_MAX
    # A tenant starts no job if its attempts that ended in the policy's window used more than this.
    core_hours_max: Amount = 1_000_000.0
    gpu_hours_max: Amount = 1_000_000.0
    written_gib_max: Amount = 1_000_000.0

    def exceeded(self, used: Usage) -> str:
        """Return the key of a limit that a tenant's use in the window exceeds; "" if it exceeds none."""
        limits = {
            "core_hours_max": (used.core_s / _HOUR_S, self.core_hours_max),
            "gpu_hours_max": (used.gpu_s / _HOUR_S, self.gpu_hours_max),
            "written_gib_max": (used.written_bytes / _GIB, self.written_gib_max),
        }
        return next((key for key, (amount, most) in limits.items() if amount > most), "")


class Prices(_Table):
    """The prices of work, in any currency."""

    core_hour: Amount = 0.0
    gpu_hour: Amount = 0.0
    written_gib: Amount = 0.0

    def cost(self, used: Usage) -> float:
        """Return the cost of work that has used these resources."""
        hours = used.core_s * self.core_hour + used.gpu_s * self.gpu_hour
        return hours / _HOUR_S + used.written_bytes / _GIB * self.written_gib


class QueuePolicy(_Table):
    """The policy of a queue. ``default`` applies to every tenant; a tenant's own table overrides its keys."""

    window_s: Annotated[float, Field(ge=1, le=366 * 86_400)] = 3600.0  # how long use counts against its tenant
    default: TenantQuota = TenantQuota()
    tenants: dict[str, TenantQuota] = Field(default_factory=dict)
    prices: Prices = Prices()

    def quota(self, tenant: str) -> TenantQuota:
        """Return a tenant's quota: the default, with the keys of the tenant's own table."""
        own = self.tenants.get(tenant)
        return self.default if own is None else self.default.model_copy(update=own.model_dump(exclude_unset=True))

    def to_text(self) -> str:
        """Return the keys that the policy sets, with their values, as JSON."""
        return self.model_dump_json(exclude_unset=True)


def load_queue_policy(path: str | Path) -> QueuePolicy:
    """Return the policy in a TOML file. Raises UsageError: the file cannot be read, or has an invalid key or value."""
    return load_model("policy of a queue", path, QueuePolicy, missing="Check the path.", wrong=_HELP)


@lru_cache(maxsize=8)
def policy_of_text(text: str) -> QueuePolicy:
    """Return the policy that ``to_text`` has written; for "", the default policy.

    Raises QueueUnavailable: another version has written the text.
    """
    try:
        return QueuePolicy.model_validate_json(text) if text else QueuePolicy()
    except ValidationError:
        message = "the policy that the queue keeps is not one of this version of codecfleet"
        raise QueueUnavailable(message, "Set it again: `codecfleet tenants policy FILE`.") from None


class TokenState(StrEnum):
    """Whether a tenant has a token."""

    NONE = "none"
    VALID = "valid"
    REVOKED = "revoked"


class Tenant(NamedTuple):
    """A tenant of a queue."""

    name: str
    quota: TenantQuota
    use: TenantUse
    queued: int  #: how many jobs wait
    token: TokenState


def new_token() -> str:
    """Return a new token."""
    return f"{_MARK}{secrets.token_hex(_TOKEN_BYTES)}"


def token_hash(token: str) -> str:
    """Return the SHA-256 hash of a token, which is all that a store keeps of it."""
    return hashlib.sha256(token.strip().encode()).hexdigest()


def is_token(text: str) -> bool:
    """Return whether a text holds a token, for example a setting that should name the token's file."""
    return _MARK in text


def read_token(path: str | Path) -> str:
    """Return the token in a file. Raises UsageError: the file cannot be read, or is empty."""
    # If the token was given instead of the file's name, it must not reach a log.
    file = "" if is_token(str(path)) else f" {path}"
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the token's file{file} cannot be read: {reason}", _CORRECT) from None
    if not token:
        raise UsageError(f"the token's file{file} is empty", _CORRECT)
    return token
