"""What the commands call: the one seam between the command line and the jobs underneath.

Everything is imported when it is called, so that ``--help`` is quick and only ``transcode`` pays for Ray. Tests pass
their own ``Services``.
"""

import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from .jobs.events import Event
from .jobs.report import Report
from .jobs.spec import TranscodeSpec

__all__ = ["Answer", "FleetLike", "JobLike", "Services", "VerifyRequest"]


class JobLike(Protocol):
    """A running job, as the command line needs it."""

    def events(self) -> AsyncIterator[Event]:
        """Yield what happens; ends after ``Done``, or when the job has failed."""
        ...

    def __await__(self) -> Generator[Any, None, Report]:
        """Wait for the end.

        Raises:
            CodecfleetError: the job failed or was cancelled.
        """
        ...

    async def cancel(self) -> None:
        """Stop the job; when it returns, the job's files are gone."""
        ...


class FleetLike(Protocol):
    """A fleet, as the command line needs it."""

    async def transcode(self, spec: TranscodeSpec) -> JobLike:
        """Start a job."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command that runs no job has to say: for people, and for programs."""

    lines: list[str]
    document: dict[str, Any]
    exact: bool = True
    """False when ``verify`` found a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What ``verify`` is to compare: an output with the part of the input that was asked for."""

    source: str
    output: str
    video_track: int
    audio_tracks: tuple[int, ...] | None
    start_s: Fraction | None
    end_s: Fraction | None
    report_path: str | None


def _open_fleet(address: str | None, workers: int | None) -> AbstractAsyncContextManager[FleetLike]:
    from .jobs.fleet import Fleet  # noqa: PLC0415

    return Fleet(address=address, workers=workers)


def _probe(source: str) -> Answer:
    from .jobs.probe import probe  # noqa: PLC0415

    found = probe(source)
    return Answer(list(found.lines()), found.model_dump(mode="json"))


def _plan(spec: TranscodeSpec) -> Answer:
    from .jobs.plan import plan_transcode  # noqa: PLC0415

    plan = plan_transcode(spec)
    return Answer(list(plan.lines()), plan.to_json())


def _verify(pair: VerifyRequest, progress: Callable[[int], None]) -> Answer:
    from .jobs.verify import verify  # noqa: PLC0415

    verdict = verify(
        pair.source,
        pair.output,
        video_track=pair.video_track,
        audio_tracks=pair.audio_tracks,
        start_s=pair.start_s,
        end_s=pair.end_s,
        report=pair.report_path,
        progress=progress,
    )
    return Answer(list(verdict.lines()), verdict.model_dump(mode="json"), verdict.exact)


@dataclass(frozen=True, slots=True)
class Services:
    """The calls, by default the real ones."""

    open_fleet: Callable[[str | None, int | None], AbstractAsyncContextManager[FleetLike]] = _open_fleet
    probe: Callable[[str], Answer] = _probe
    plan: Callable[[TranscodeSpec], Answer] = _plan
    verify: Callable[[VerifyRequest, Callable[[int], None]], Answer] = _verify
    """Compares two files, calling its second argument with the number of frames compared so far."""
    exit_now: Callable[[int], None] = os._exit
    """Ends the process at once, without Python's own clean-up."""
