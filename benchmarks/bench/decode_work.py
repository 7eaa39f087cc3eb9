"""Work for a fleet's workers that decodes but does not encode, to measure only a worker's decoding.

Workers find this module because it is beside the program that is run.
"""

import os
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

from codecfleet.actors.decode.decoding import DecodeRange, DecodeTally, decode_range
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.errors import EngineUnfit

from .stack_sampler import Profile, StackSampler

__all__ = ["DecodeOnly", "Decoded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The result of a work item, and the counts of its worker process so far.

    ``process`` names the GPU and the process. ``first_picture_s`` is the time of the first picture on the clock that
    all processes of a machine share (``time.monotonic``). ``decode_s`` is the session's part of ``wall_s``: feeding,
    waiting and copying. ``sessions_made`` and ``at_once_most`` are for the whole process.
    """

    process: str
    pictures: int
    first_picture_s: float
    wall_s: float
    decode_s: float
    sessions_made: int
    at_once_most: int
    profile: Profile = field(default_factory=Profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOnly(Work[Decoded]):
    """Decode ranges, one after the other, ``films`` times over, and drop the pictures."""

    ranges: tuple[DecodeRange, ...]
    films: int = 1
    on_device: bool = False
    with_profile: bool = False

    def run(self, context: WorkContext) -> Decoded:
        """Run in the calling thread.

        Raises:
            EngineUnfit: this worker has no GPU, or its GPU does not decode the film.
            DeviceError: the device failed.
        """
        if not isinstance(context.device, Gpu):
            message = "this worker has no GPU"
            raise EngineUnfit(message, "Run the benchmark on a cluster in which Ray finds a GPU.")
        sampler = StackSampler() if self.with_profile else None
        began_s = time.perf_counter()
        with _at_once, sampler or nullcontext():
            counted = self._counted(context, context.device)
        return Decoded(
            process=f"{os.environ.get('CUDA_VISIBLE_DEVICES', '')}, process {os.getpid()}",
            pictures=counted.pictures,
            first_picture_s=counted.first_picture_s,
            wall_s=time.perf_counter() - began_s,
            decode_s=counted.decode_s,
            sessions_made=context.device.opened().pool.counts.made,
            at_once_most=_at_once.most,
            profile=sampler.profile() if sampler else Profile(),
        )

    def _counted(self, context: WorkContext, gpu: Gpu) -> "_Counted":
        counted = _Counted()
        for range_ in self.ranges * self.films:
            tally = DecodeTally()
            for _picture in self._pictures(range_, tally, gpu):
                counted.pictures += 1
                counted.first_picture_s = counted.first_picture_s or time.monotonic()
                context.advance()
            counted.decode_s += tally.decode_s
        return counted

    def _pictures(self, range_: DecodeRange, tally: DecodeTally, gpu: Gpu) -> Iterable[object]:
        if self.on_device:
            return decode_range(range_, tally, gpu.surfaces)
        return decode_range(range_, tally, gpu.pictures)


@dataclass(slots=True)
class _Counted:
    pictures: int = 0
    first_picture_s: float = 0.0
    decode_s: float = 0.0


class _AtOnce:
    """How many of these work items run in this process at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


_at_once = _AtOnce()
