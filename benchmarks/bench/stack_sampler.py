"""Profiles one thread: samples its innermost lines, and sorts them into stages of decoding.

A wait in a library counts for the line that called it. The sampler holds the GIL while it samples, so it slows the
thread a little: profiles are taken in separate runs.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import FrameType
from typing import Self

__all__ = ["STAGES", "Profile", "StackSampler", "add_profiles", "stage_of"]

INTERVAL_S = 0.005
LINES_KEPT = 12
OTHER = "other"
STAGES = {
    "media/opening": "demux",
    "media/timeline": "times",
    "decode/decoding": "demux",
    "decode/nvdec_support": "bitstream",
    "nvdec/packet_prep": "bitstream",
    "nvdec/pool": "session",
    "nvdec/session": "feed",
    "nvdec/decoder": "python",
    "nvdec/range": "python",
    "cuda/context": "wait",
    "cuda/memory": "copy",
    "convert/device_pictures": "copy",
    "convert/unpacking": "copy",
    "surfaces/host_pictures": "copy",
}
"""The stage of each module; modules are named with their folders. The innermost module counts: a copy within a session
counts as a copy."""


@dataclass(slots=True)
class Profile:
    """Wall seconds by stage, and by line ("module:function:line")."""

    stages_s: dict[str, float] = field(default_factory=dict)
    lines_s: dict[str, float] = field(default_factory=dict)


class StackSampler:
    """A context manager that samples the thread that enters it, until the thread leaves it."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._watched = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stack-sampler", daemon=True)
        self._stages: Counter[str] = Counter()
        self._lines: Counter[str] = Counter()
        self._began_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.wall_s = time.perf_counter() - self._began_s

    @property
    def samples(self) -> int:
        """The number of samples taken."""
        return self._stages.total()

    def profile(self) -> Profile:
        """Return the profile in seconds; call it after the sampled block."""
        each_s = self.wall_s / max(sum(self._stages.values()), 1)
        return Profile(
            {name: count * each_s for name, count in self._stages.items()},
            {name: count * each_s for name, count in self._lines.most_common(LINES_KEPT)},
        )

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - documented, although the name looks private
            if frame is not None:
                self._stages[stage_of(frame)] += 1
                self._lines[_line_of(frame)] += 1


def stage_of(frame: FrameType) -> str:
    """Return the stage of decoding to which a stack belongs."""
    for each in _outwards(frame):
        stage = STAGES.get(_module(each))
        if stage is not None:
            return stage
    return OTHER


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    each: FrameType | None = frame
    while each is not None:
        yield each
        each = each.f_back


def _module(frame: FrameType) -> str:
    return "/".join(PurePath(frame.f_code.co_filename).with_suffix("").parts[-2:])


def _line_of(frame: FrameType) -> str:
    return f"{_module(frame)}:{frame.f_code.co_name}:{frame.f_lineno}"


def add_profiles(profiles: Sequence[Profile]) -> Profile:
    """Return the sum of several threads' profiles."""
    total = Profile()
    for profile in profiles:
        for summed, part in ((total.stages_s, profile.stages_s), (total.lines_s, profile.lines_s)):
            for name, seconds in part.items():
                summed[name] = summed.get(name, 0.0) + seconds
    return total
