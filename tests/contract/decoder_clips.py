"""Small clips of every kind that a picture decoder must decode correctly, and ranges of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from codecfleet.actors.decode.decoding import DecodeRange
from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.actors.decode.wanted import WantedPictures
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times

__all__ = ["CLIPS", "Footage", "footage"]

GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3:b-adapt=0"
QUIET = "log-level=none:pools=1:frame-threads=1"
HIDING = (("auto-alt-ref", "1"), ("lag-in-frames", "25"), ("b", "200k"), ("deadline", "realtime"), ("cpu-used", "5"))
COLOURS = "colorprim=bt709:transfer=bt709:colormatrix=bt709:range=pc"
FEW, MANY = constant_times(26), constant_times(50)


def _h264(params: str, **changes: object) -> Clip:
    options = (("x264-params", f"{GOP}:{params}"),)
    return Clip(**{"times": FEW, "options": options, **changes})  # type: ignore[arg-type]


def _hevc(params: str, **changes: object) -> Clip:
    options = (("x265-params", f"{GOP}:{QUIET}:{params}"),)
    wanted = {"times": FEW, "encoder": "libx265", "options": options, "width": 160, "height": 144, **changes}
    return Clip(**wanted)  # type: ignore[arg-type]


CLIPS: dict[str, Clip] = {
    "h264-closed.mp4": _h264("open-gop=0"),
    "h264-open.mp4": _h264("open-gop=1"),
    "h264-open.ts": _h264("open-gop=1", time_base=Fraction(1, 25), times=tuple(range(26))),
    "h264-no-b.mkv": _h264("bframes=0", width=66, height=50),
    "h264-colours.mp4": _h264(COLOURS),
    "h264-uneven.mkv": _h264("open-gop=1", times=uneven_times((40, 10, 90, 33, 7) * 5)),
    "h264-edit-list.mp4": _h264(
        "open-gop=1", times=constant_times(26, start=-120), muxer_options=(("avoid_negative_ts", "disabled"),)
    ),
    "h264-444.mkv": _h264("", pix_fmt="yuv444p", width=63, height=47),
    "h264-422-10.mkv": _h264("", pix_fmt="yuv422p10le"),
    "hevc-open.mp4": _hevc("open-gop=1"),
    "hevc-10-open.mkv": _hevc("open-gop=1", pix_fmt="yuv420p10le"),
    "hevc-12-closed.mp4": _hevc("open-gop=0", pix_fmt="yuv420p12le"),
    "vp9-hidden.webm": Clip(
        times=MANY, encoder="libvpx-vp9", options=HIDING, keyframes=frozenset({0, 20, 33}), width=144, height=128
    ),
    "vp8.webm": Clip(times=FEW, encoder="libvpx", keyframes=frozenset({0, 9, 19}), options=(("deadline", "realtime"),)),
}
"""By file name, and as small as NVDEC decodes: HEVC from 144x144, VP9 from 128x128, the others from 48x16."""


@dataclass(frozen=True, slots=True)
class Footage:
    """A clip on disk and its index."""

    path: Path
    index: TrackIndex

    def ranges(self) -> list[DecodeRange]:
        """Return the whole track, every range from an access point to the end, and short ranges that stop early."""
        points = self.index.access_points
        pieces = [
            self._range(one, points[place + 1] if place + 1 < len(points) else None) for place, one in enumerate(points)
        ]
        return [self._range(None, None), *(self._range(point, None) for point in points[1:]), *pieces]

    def wanted(self, pictures: Iterable[PictureHash], *, by_packet: bool) -> WantedPictures:
        """Return the arguments that make a decoder return only these pictures."""
        assert self.index.has_whole_pictures
        times = frozenset(picture.ticks for picture in pictures)
        return WantedPictures(times, self.index.shifts, self.index.tick_divisor, by_packet)

    def _range(self, entry: object, end: object) -> DecodeRange:
        return DecodeRange(
            source=str(self.path),
            stream_index=self.index.stream_index,
            time_base=self.index.time_base,
            nominal_ticks=self.index.nominal_ticks,
            entry=entry,  # type: ignore[arg-type]
            last_packet=None if end is None else end.packet + 2,  # type: ignore[attr-defined]
            shifts=self.index.shifts,
            untimed=self.index.untimed,
        )


@cache
def footage(folder: Path, name: str) -> Footage:
    """Return a clip; it is made once in each folder."""
    path = make_clip(folder / name, CLIPS[name])
    return Footage(path, read_source(str(path)).index)
