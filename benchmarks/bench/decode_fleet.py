"""Decoding through a fleet: the work of the raw decoders, done by worker actors of a private Ray."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from codecfleet.actors.decode.decoding import DecodeRange
from codecfleet.cluster.fleet.pool import Pool, more_slots
from codecfleet.cluster.placement.model.demand import EncoderChoice

from .decode_work import Decoded, DecodeOnly
from .failures import CommandFailed
from .film import Film
from .narrow_pool import open_narrow_pool
from .stack_sampler import Profile, add_profiles

if TYPE_CHECKING:
    from codecfleet.cluster.ray.embedded import Connection
    from codecfleet.cluster.supervisor.runner.client import SupervisorClient
    from codecfleet.cluster.supervisor.status.status import Status

__all__ = ["DecodeFleet", "FleetWay", "Pass", "SessionCounts", "profile_record"]

LONG_FRAMES = 10**6
"""The length of the requested work: so long that placement grants as many sessions as the benchmark requests."""
SETTLE_S = 60.0


class FleetWay(StrEnum):
    """The ways to decode on a fleet's workers."""

    DEVICE = "worker, device, one stream"
    HOST = "worker, host, one stream"
    SEGMENTS = "worker, host, 2 s segments"


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass of one way to decode: distinct pictures, wall time, and the result of each work item."""

    pictures: int
    wall_s: float
    decoded: tuple[Decoded, ...]


@dataclass(slots=True)
class SessionCounts:
    """Counts of one worker process: the decoder sessions that it made, and the most work items it ran at once."""

    made: int = 0
    at_once: int = 0


class DecodeFleet:
    """A fleet on some of this machine's GPUs, which decodes a film.

    Args:
        devices: the devices, named as in CUDA_VISIBLE_DEVICES; Ray sees no other devices.
        film: the film to decode.
        polls: whether its supervisor polls the GPUs, and reduces slots when another program uses them.
    """

    def __init__(self, devices: Sequence[str], film: Film, *, polls: bool = True) -> None:
        self._devices = devices
        self._polls = polls
        self._film = film
        self._opened: tuple[Pool, Connection, SupervisorClient] | None = None
        self._job = ""
        self.granted = 0
        self.sessions: dict[str, SessionCounts] = {}

    async def __aenter__(self) -> Self:
        self._opened = await open_narrow_pool(self._devices, polls=self._polls)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            pool, connection = self._opened[:2]
            await pool.aclose()
            await connection.close()

    @property
    def _pool(self) -> Pool:
        return self._there[0]

    @property
    def _there(self) -> "tuple[Pool, Connection, SupervisorClient]":
        if self._opened is None:
            message = "the fleet is not open"
            raise CommandFailed(message)
        return self._opened

    @property
    def slots(self) -> int:
        """The number of sessions granted to the last demand."""
        return self._pool.state.of(self._job).slots

    def status(self) -> "Status":
        """Return the status of the fleet's supervisor, as ``codecfleet status`` shows it."""
        if (found := self._there[2].status()) is None:
            message = "the supervisor is not in this process"
            raise CommandFailed(message)
        return found

    async def settle(self, sessions: int, pieces: int, patience_s: float = SETTLE_S) -> None:
        """Request GPU sessions for a job with ``pieces`` work items, and wait until they are granted.

        Raises:
            CommandFailed: no GPU here decodes the film, or no worker came.
        """
        self._pool.set_demand(self._job, None)
        self._job = f"bench-{sessions}"
        demand = replace(
            self._film.demand,
            job=self._job,
            segments=(LONG_FRAMES,) * max(sessions, pieces),
            renditions=(),
            encoder=EncoderChoice.SOFTWARE,
            needs_gpu=True,
            workers_max=sessions,
        )
        reason = demand.software_decode or (await self._pool.preview(demand)).never
        if reason:
            raise CommandFailed(reason)
        self._pool.set_demand(self._job, demand)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await more_slots(self._pool, self._job, sessions - 1)
        if not self.slots:
            message = f"no worker came within {patience_s:g} s: {self._pool.state.of(self._job).waits_for}"
            raise CommandFailed(message)
        self.granted = self.slots

    def pieces(self, way: FleetWay, sessions: int, films: int) -> int:
        """Return how many work items a pass has."""
        return len(self._film.segments) * films * sessions if way is FleetWay.SEGMENTS else sessions

    async def run(self, way: FleetWay, sessions: int, films: int, *, with_profile: bool = False) -> Pass:
        """Decode ``films`` films for each session."""
        works = [
            self._work(way, number, films, with_profile=with_profile)
            for number in range(self.pieces(way, sessions, films))
        ]
        began_s = time.perf_counter()
        decoded = tuple(await asyncio.gather(*(self._pool.submit(work) for work in works)))
        wall_s = time.perf_counter() - began_s
        self._note(decoded)
        once = self._film.pictures_in_segments * films * sessions
        pictures = once if way is FleetWay.SEGMENTS else sum(one.pictures for one in decoded)
        return Pass(pictures, wall_s, decoded)

    async def first_pictures_s(self, times: int) -> list[float]:
        """Give segments to a warm worker one by one; return the time from each submission to the first picture."""
        found = []
        for number in range(times):
            range_ = self._film.segments[number % len(self._film.segments)]
            submitted_s = time.monotonic()
            decoded = await self._pool.submit(self._order(f"first {number}", (range_,)))
            found.append(decoded.first_picture_s - submitted_s)
            self._note((decoded,))
        return found

    def _work(self, way: FleetWay, number: int, films: int, *, with_profile: bool) -> DecodeOnly:
        label = f"{way.value} {number}"
        if way is FleetWay.SEGMENTS:
            range_ = self._film.segments[number % len(self._film.segments)]
            return self._order(label, (range_,), with_profile=with_profile)
        on_device = way is FleetWay.DEVICE
        return self._order(label, (self._film.whole,), films=films, on_device=on_device, with_profile=with_profile)

    def _order(self, label: str, ranges: tuple[DecodeRange, ...], **options: Any) -> DecodeOnly:
        return DecodeOnly(job=self._job, label=label, ranges=ranges, **options)

    def _note(self, decoded: Sequence[Decoded]) -> None:
        for one in decoded:
            counts = self.sessions.setdefault(one.process, SessionCounts())
            counts.made = max(counts.made, one.sessions_made)
            counts.at_once = max(counts.at_once, one.at_once_most)


def profile_record(passed: Pass) -> dict[str, Any]:
    """Return a profiled pass's time by stage, in thread microseconds per picture."""
    total: Profile = add_profiles([one.profile for one in passed.decoded])
    pictures = max(sum(one.pictures for one in passed.decoded), 1)

    def per_picture(seconds: dict[str, float]) -> dict[str, float]:
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        return {name: round(spent * 1e6 / pictures, 2) for name, spent in ordered}

    return {
        "fps": passed.pictures / passed.wall_s,
        "thread_us_per_picture": round(sum(one.wall_s for one in passed.decoded) * 1e6 / pictures, 2),
        "session_us_per_picture": round(sum(one.decode_s for one in passed.decoded) * 1e6 / pictures, 2),
        "stages_us_per_picture": per_picture(total.stages_s),
        "lines_us_per_picture": dict(list(per_picture(total.lines_s).items())[:12]),
    }
