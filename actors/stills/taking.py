"""Takes stills from one range of a track: the pictures on screen at given times."""

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..device.work import WorkContext
from ..media.values import VideoFormat
from ..segment.decode_path import DecodePath
from ..segment.filtering import FilterChain, FilterSettings
from ..segment.steps import UPRIGHT, PictureSteps, Turn, turned_size
from ..segment.walk import SegmentWalk
from .files import ANY_RATE, RGB, encode_still
from .look import StillLook
from .work import PictureWork, SeenSegment


@dataclass(frozen=True, slots=True, eq=False)
class TakenPicture:
    """A picture with its presentation time: the bytes of its file, or its RGB samples."""

    ticks: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TakenStills(SeenSegment):
    """The stills of one range: each picture once, and the picture on screen at each moment."""

    pictures: tuple[TakenPicture, ...]
    shown: tuple[int | None, ...]  # for each moment: the index in ``pictures`` of the picture on screen, or None

    @property
    def is_complete(self) -> bool:
        """Whether every moment has a picture."""
        return None not in self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeStills(PictureWork[TakenStills]):
    """Take the picture on screen at each of ``moments``: the last picture at or before that time."""

    moments: tuple[int, ...]  # ascending ticks, not before the segment
    still: StillLook

    def look(self, context: WorkContext, path: DecodePath[VideoFrame], fallback: str) -> TakenStills:
        """Return the picture on screen at each moment, among the pictures of one decoding path."""
        return _Taking(self, context, path, fallback).result()


class _Taking:
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
            neighbours=True,  # if the range begins with damage, the previous picture stays on screen
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
        if self._walk.taken[-1:] == [ticks]:  # the picture is in the segment itself
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


class Painter:
    """Makes stills of one look; used by one thread."""

    def __init__(self, look: StillLook) -> None:
        self._look = look
        width, height = turned_size((look.width, look.height), look.turn)
        stored = VideoFormat(width, height, RGB, ANY_RATE, colour=look.colour)
        steps = None
        if look.crop is not None:
            size, shown = look.crop
            steps = PictureSteps(
                size=size, crop=shown, turn=UPRIGHT, scaled=(width, height), padded=(width, height), place=(0, 0)
            )
        settings = FilterSettings(stored, steps=steps, tone=look.tone, by_picture=look.by_picture)
        self._chain = FilterChain(settings, 1 / ANY_RATE)

    def paint(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return a picture as (rows, columns, 3) samples of RGB, as shown; ``Unsupported`` if FFmpeg refuses."""
        ((_, picture),) = self._chain.push(0, frame)
        return turned(np.asarray(picture.to_ndarray(format=RGB), dtype=np.uint8), self._look.turn)

    def draw(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return a picture's file, or its samples if no file is wanted; raises ``Unsupported`` or ``EncoderFailed``."""
        rgb, look = self.paint(frame), self._look
        if look.format is None:
            return rgb.ravel()
        return np.frombuffer(encode_still(rgb, look.format, look.quality), dtype=np.uint8)


def turned(rgb: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    """Return a turned copy of a picture, which has (rows, columns, 3) samples."""
    a, b, c, d = turn
    rows = rgb if a else rgb.transpose(1, 0, 2)
    return np.ascontiguousarray(rows[:: b + d, :: a + c])
