"""Stills of one range of a track: of the pictures that are on screen at given times."""

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..device.work import WorkContext
from ..segment.decode_path import DecodePath
from ..segment.walk import SegmentTally, SegmentWalk
from .look import StillLook
from .painting import Painter
from .work import PictureWork


@dataclass(frozen=True, slots=True, eq=False)
class TakenPicture:
    """A picture at its own presentation time: the bytes of its file, or its RGB samples."""

    ticks: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TakenStills:
    """The stills of one range."""

    segment: int
    pictures: tuple[TakenPicture, ...]
    shown: tuple[int | None, ...]  # for each moment, what is on screen: its place in ``pictures``, None for nothing
    frames_decoded: int
    tally: SegmentTally

    @property
    def is_complete(self) -> bool:
        """Whether every moment has its picture."""
        return None not in self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeStills(PictureWork[TakenStills]):
    """Take the picture on screen at each of ``moments``: the last one presented at or before it."""

    moments: tuple[int, ...]  # ascending ticks, not before the segment
    still: StillLook

    def look(self, context: WorkContext, path: DecodePath[VideoFrame], fallback: str) -> TakenStills:
        """Take them from the pictures of one path."""
        return _Taking(self, context, path, fallback).result()


class _Taking:
    """The state of one run on one path."""

    def __init__(self, work: TakeStills, context: WorkContext, path: DecodePath[VideoFrame], fallback: str) -> None:
        self._work = work
        self._context = context
        self._walk: SegmentWalk[VideoFrame, None] = SegmentWalk(
            work.decode,
            (work.start_ticks, work.end_ticks),
            path,
            fallback,
            make=self._see,
            seen=partial(context.advance, 0),
            neighbours=True,  # where the range begins with damage, what came before stays on screen
            in_thread=False,
        )
        self._draw = Painter(work.still).draw
        self._waiting = deque(work.moments)
        self._on_screen: tuple[int, VideoFrame] | None = None
        self._pictures: list[TakenPicture] = []
        self._shown: list[int | None] = []

    def result(self) -> TakenStills:
        with closing(self._walk.results()) as results:
            for _ in results:
                pass
        while self._waiting:
            self._take()
        return TakenStills(
            segment=self._work.segment,
            pictures=tuple(self._pictures),
            shown=tuple(self._shown),
            frames_decoded=self._walk.met.frames,
            tally=self._walk.tally(),
        )

    def _see(self, ticks: int, frame: VideoFrame) -> Iterator[tuple[int, None]]:
        while self._waiting and self._waiting[0] < ticks:
            self._take()
        self._on_screen = ticks, frame
        if self._walk.taken[-1:] == [ticks]:  # not one around the segment
            self._context.advance()
        yield from ()

    def _take(self) -> None:
        self._waiting.popleft()
        if self._on_screen is None:
            self._shown.append(None)
            return
        ticks, frame = self._on_screen
        if not self._pictures or self._pictures[-1].ticks != ticks:
            self._pictures.append(TakenPicture(ticks, self._draw(frame)))
        self._shown.append(len(self._pictures) - 1)
