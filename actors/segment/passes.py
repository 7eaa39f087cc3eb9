"""Passes over a segment's pictures: each decodes the segment once, for some of its renditions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Generic

from ..decode.decoding import DecodeRange, PictureT
from ..device.work import WorkContext
from .decode_path import DecodePath
from .rendition import PictureSink, Prepared, RenditionSettings
from .sink_thread import SinkThread
from .walk import SegmentTally, SegmentWalk


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a pass has given to one rendition."""

    tally: SegmentTally
    due: list[int]  # the times that packets should have
    began_ticks: int | None  # if the track has its own rate: the time of the first source picture
    resized: Counter[tuple[int, int]]


class SegmentProgress:
    """Reports progress in pictures: each time that a picture is worked on, ``share`` of a picture is done."""

    def __init__(self, context: WorkContext, share: Fraction) -> None:
        self._context = context
        self._share = share
        self._worked = 0
        self._counted = 0

    def seen(self) -> None:
        """Raise ``Cancelled`` if the work was cancelled."""
        self._context.advance(0)

    def count(self, pictures: int) -> None:
        """Report work on some pictures. Raises ``Cancelled``."""
        self._worked += pictures
        self.finish(int(self._worked * self._share))

    def finish(self, pictures: int) -> None:
        """Report that this many pictures are done in total."""
        self._context.advance(max(0, pictures - self._counted))
        self._counted = max(pictures, self._counted)


class SegmentPasses(Generic[PictureT]):
    """The passes over one segment on one path. Used by one thread.

    Args:
        range_: the packets to decode.
        interval: the segment's time [start, end), in ticks; None is unbounded.
        path: the decoder and its memory.
        fallback: why no better path is used.
        progress: counts the pictures that every rendition of a pass has done.
        leads: whether renditions also get the last picture before the segment, which may still be shown when it starts.
    """

    def __init__(
        self,
        range_: DecodeRange,
        interval: tuple[int | None, int | None],
        path: DecodePath[PictureT],
        fallback: str,
        progress: SegmentProgress,
        *,
        leads: bool,
    ) -> None:
        self.path = path
        self.progress = progress
        self.decode_s = 0.0
        self._range = range_
        self._interval = interval
        self._fallback = fallback
        self._leads = leads

    def walk(self, renditions: Sequence[tuple[RenditionSettings, PictureSink]]) -> list[Taken]:
        """Decode the segment, and give its pictures to the sinks; several sinks of host memory each run in a thread."""
        at_once = len(renditions) > 1 and self.path.device is None
        with ExitStack() as stack:
            sinks = [stack.enter_context(SinkThread(sink)) if at_once else sink for _, sink in renditions]
            prepared = [
                stack.enter_context(Prepared(made, self.path, sink, own_pictures=at_once))
                for (made, _), sink in zip(renditions, sinks, strict=True)
            ]
            walk: SegmentWalk[PictureT, tuple[Prepared[PictureT], PictureT]] = SegmentWalk(
                self._range,
                self._interval,
                self.path,
                self._fallback,
                make=partial(_filtered, prepared),
                finish=partial(_last_filtered, prepared),
                seen=self.progress.seen,
                neighbours=renditions[0][0].filters.has_memory,
                leads=self._leads,
                follows=any(made.encoder.ahead_frames for made, _ in renditions),
            )
            self._give_all(walk, prepared)
            tally = walk.tally()
            self.decode_s += tally.decode_s
            return [
                Taken(tally=tally, due=each.due(walk.taken), began_ticks=each.began_ticks, resized=each.chain.resized)
                for each in prepared
            ]

    def _give_all(
        self,
        walk: SegmentWalk[PictureT, tuple[Prepared[PictureT], PictureT]],
        prepared: "Sequence[Prepared[PictureT]]",
    ) -> None:
        counted = 0

        def count() -> None:
            nonlocal counted
            done = min(each.sink.done for each in prepared)
            self.progress.count(done - counted)
            counted = done

        with closing(walk.results()) as pictures:
            for ticks, (rendition, picture) in pictures:
                for _ in rendition.take(ticks, picture, walk.met.messages.get(ticks, {})):
                    count()
        for rendition in prepared:
            for _ in rendition.take_last():
                count()
        # The encoders are drained in turn, so that the threads of all of them stay busy.
        left = [each.sink for each in prepared]
        while left:
            left = [sink for sink in left if sink.drain()]
            count()


def _filtered(
    renditions: "Sequence[Prepared[PictureT]]", ticks: int, picture: PictureT
) -> Iterator[tuple[int, tuple["Prepared[PictureT]", PictureT]]]:
    # On a device, renditions without filters share the picture, since its time is kept apart from the surface. In host
    # memory each rendition has a picture of its own, since encoders write times into their pictures.
    for rendition in renditions:
        for at, made in rendition.chain.push(ticks, picture):
            yield at, (rendition, made)


def _last_filtered(
    renditions: "Sequence[Prepared[PictureT]]",
) -> Iterator[tuple[int, tuple["Prepared[PictureT]", PictureT]]]:
    for rendition in renditions:
        for at, made in rendition.chain.finish():
            yield at, (rendition, made)
