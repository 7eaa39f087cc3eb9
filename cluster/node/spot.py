"""Finds in the answers of AWS's and Google Cloud's metadata servers whether this machine will end. Does no I/O.

For AWS, the rules are in "Spot Instance interruption notices" and "EC2 instance rebalance recommendations" (EC2 User
Guide); for Google Cloud, in "View and query VM metadata", the keys ``preempted`` and ``maintenance-event`` (Compute
Engine).
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol

from ...errors import one_line

SAFE_S: Final = 5
"""How many seconds before the machine's end the node must have ended."""
_AWS_NOTICE_S: Final = 120
"""AWS announces the end of a spot instance two minutes ahead."""
_UNSTATED_S: Final = 60
"""How long the node drains if the notice of AWS states no time."""
_PREEMPTED_S: Final = 30
"""Google Cloud ends a preempted machine after 30 s."""
_MAINTENANCE_S: Final = 60
"""Google Cloud announces maintenance a minute ahead."""
_GPU_MAINTENANCE_S: Final = 3_600
"""Google Cloud announces maintenance of a machine with GPUs an hour ahead."""
_GPU_DRAIN_S: Final = 300
"""How long before the maintenance of a machine with GPUs its node begins to drain. Until then the node takes work: a
draining node would end as soon as it is idle.
"""
_TOKEN_TTL_S: Final = 21_600
_TOKEN_MAX: Final = 1024


class Spot(Enum):
    """Which metadata server a node asks."""

    AUTO = "auto"  #: the server that answers
    AWS = "aws"
    GCP = "gcp"
    OFF = "off"  #: no server is queried

    @property
    def is_promised(self) -> bool:
        """Whether the user has said that the cloud may take this machine back."""
        return self in (Spot.AWS, Spot.GCP)


@dataclass(frozen=True, slots=True)
class MetadataQuestion:
    """A request to a metadata server."""

    path: str
    headers: Mapping[str, str]
    method: str = "GET"


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """A metadata server's answer; the names of its headers are in lower case."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


Ask = Callable[[MetadataQuestion], MetadataAnswer | None]
"""Sends a question, and returns the answer; None if there is no whole answer in time."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that the cloud will end this machine."""

    left_s: int  # how long the node may drain
    why: str


class NotHere(Exception):
    """The server did not answer, or did not answer as this cloud's metadata server would."""


class Cloud(Protocol):
    """A cloud's metadata server."""

    name: str

    @property
    def interval_s(self) -> float:
        """The seconds between two calls of ``look``."""
        ...

    def look(self, ask: Ask) -> Notice | None:
        """Return the cloud's notice; None if it has given none. Raises NotHere: this cloud's server does not answer."""


class Aws:
    """The metadata server of EC2, in its second version (IMDSv2), which requires a token."""

    name = "AWS"

    def __init__(self) -> None:
        self._token = ""
        self._is_at_risk = False

    @property
    def interval_s(self) -> float:
        """5 s, as AWS advises; 1 s after a rebalance recommendation, because a notice is then likely."""
        return 1.0 if self._is_at_risk else 5.0

    def look(self, ask: Ask) -> Notice | None:
        """Ask for the interruption notice, then for a rebalance recommendation."""
        self._token = self._token or _token(ask)
        action = self._get(ask, "spot/instance-action")
        if action.status == HTTPStatus.OK:
            return _aws_notice(action)
        if action.status != HTTPStatus.NOT_FOUND:
            self._token = ""
            raise NotHere(_status("spot/instance-action", action))
        if not self._is_at_risk:
            self._is_at_risk = self._get(ask, "events/recommendations/rebalance").status == HTTPStatus.OK
        return None

    def _get(self, ask: Ask, key: str) -> MetadataAnswer:
        question = MetadataQuestion(f"/latest/meta-data/{key}", {"X-aws-ec2-metadata-token": self._token})
        return ask(question) or MetadataAnswer(0)


def _token(ask: Ask) -> str:
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
    answer = ask(MetadataQuestion("/latest/api/token", headers, "PUT")) or MetadataAnswer(0)
    token = answer.body
    is_token = token.isascii() and token.isprintable() and 0 < len(token) <= _TOKEN_MAX
    if answer.status != HTTPStatus.OK or not is_token:
        raise NotHere(_status("the token of IMDSv2", answer))
    return token


def _status(what: str, answer: MetadataAnswer) -> str:
    return f"{what}: " + (f"HTTP status {answer.status}" if answer.status else "no answer")


def _aws_notice(answer: MetadataAnswer) -> Notice:
    stated = None
    with suppress(ValueError, RecursionError):
        stated = json.loads(answer.body)
    if not isinstance(stated, dict) or not isinstance(action := stated.get("action"), str):
        raise NotHere("spot/instance-action is not as documented")
    left_s: float = _UNSTATED_S
    # Both times are by the server's clock; this machine's clock may be wrong.
    with suppress(TypeError, ValueError, KeyError):
        ends, now = datetime.fromisoformat(stated["time"]), parsedate_to_datetime(answer.headers["date"])
        left_s = (ends - now).total_seconds()
    return _notice(min(left_s, _AWS_NOTICE_S), f"AWS will {one_line(action)[:20]} this spot instance")


class Gcp:
    """The metadata server of Compute Engine, which announces maintenance earlier if the machine has GPUs."""

    name = "Google Cloud"
    interval_s = 1.0  # short, because no answer states a time: the time left is counted from the first announcement

    def __init__(self, *, has_gpus: bool = False, now_s: Callable[[], float] = time.monotonic) -> None:
        self._maintenance_s, self._now_s = _GPU_MAINTENANCE_S if has_gpus else _MAINTENANCE_S, now_s
        self._ends_s: float | None = None  # when maintenance begins, counted from its first announcement

    def look(self, ask: Ask) -> Notice | None:
        """Ask whether the machine is preempted, then whether it ends for its host's maintenance."""
        if _gcp_value(ask, "preempted", ("TRUE", "FALSE")) == "TRUE":
            return _notice(_PREEMPTED_S, "Google Cloud preempts this machine")
        events = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE", "TERMINATE_ON_HOST_MAINTENANCE")
        if _gcp_value(ask, "maintenance-event", events) != events[-1]:
            self._ends_s = None
            return None
        now_s = self._now_s()
        if self._ends_s is None:
            self._ends_s = now_s + self._maintenance_s
        left_s = round(self._ends_s - now_s)
        return None if left_s > _GPU_DRAIN_S else _notice(left_s, "Google Cloud ends this machine for maintenance")


def _gcp_value(ask: Ask, key: str, values: tuple[str, ...]) -> str:
    headers = {"Metadata-Flavor": "Google"}
    answer = ask(MetadataQuestion(f"/computeMetadata/v1/instance/{key}", headers)) or MetadataAnswer(0)
    value, is_google = answer.body.strip(), answer.headers.get("metadata-flavor") == "Google"
    if answer.status != HTTPStatus.OK or not is_google or value not in values:
        raise NotHere(_status(key, answer))
    return value


def _notice(left_s: float, why: str) -> Notice:
    return Notice(max(1, int(left_s) - SAFE_S), why)


def clouds(spot: Spot, *, has_gpus: bool = False) -> tuple[Cloud, ...]:
    """Return the clouds to ask: all for ``AUTO``, none for ``OFF``."""
    aws, gcp = Aws(), Gcp(has_gpus=has_gpus)
    found: dict[Spot, tuple[Cloud, ...]] = {Spot.AUTO: (aws, gcp), Spot.AWS: (aws,), Spot.GCP: (gcp,)}
    return found.get(spot, ())
