"""What commands ask for and get: answers, machines, nodes, and running jobs and batches as they see them."""

from collections.abc import AsyncIterator, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...jobs.batch.results import BatchProgress, BatchResult
    from ...jobs.report.events import Event
    from ...jobs.report.report import Report
    from ...jobs.request.spec import TranscodeSpec


class JobLike(Protocol):
    """A running job."""

    def events(self) -> "AsyncIterator[Event]":
        """Yield the job's events until ``Done`` or its failure."""
        ...

    def __await__(self) -> "Generator[Any, None, Report]": ...

    async def cancel(self, *, keep: bool = False) -> None:
        """Stop the job; when it returns, its files are gone, or with ``keep`` all but what it goes on from."""
        ...


class BatchLike(Protocol):
    """A running batch."""

    def __aiter__(self) -> "AsyncIterator[BatchResult]": ...

    @property
    def progress(self) -> "BatchProgress":
        """Where it stands."""
        ...

    async def cancel(self) -> None:
        """Stop it; another run goes on from what is finished."""
        ...


class FleetLike(Protocol):
    """A fleet."""

    async def transcode(self, spec: "TranscodeSpec") -> JobLike:
        """Start a job."""
        ...


class NodeLike(Protocol):
    """A node that is ready to start."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people are told of it, a line each."""
        ...

    def run(self, on_start: Callable[[], object]) -> None:
        """Run it in this process until a signal ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer, for people and for programs."""

    lines: list[str]
    document: dict[str, Any]
    exact: bool = True
    """False when ``verify`` found a difference, or ``doctor`` something to fix: exit code 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a cluster or a simulated fleet, or this one.

    ``fresh`` ignores earlier codec trials; without ``software`` this machine's software codecs need not be tried.
    """

    address: str | None = None
    fleet: str | None = None
    fresh: bool = False
    software: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A node that is to start, as asked for: ``cluster.node.ray_start.NodeOptions`` says what each means.

    ``cpus`` None means all that this process may use.
    """

    address: str = ""
    ip: str = ""
    port: int = 6379
    dashboard_host: str = "127.0.0.1"
    dashboard_port: int = 8265
    temp_dir: str = ""
    drain_s: int = 60
    is_open: bool = False
    rest: tuple[str, ...] = ()
    cpus: int | None = None
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
