"""Clips with many groups of pictures: open and closed groups, reordered pictures, other codecs."""

from fractions import Fraction

from codecfleet.testing.clips import Clip, constant_times

FRAMES, GOP = 60, 12
X264 = f"keyint={GOP}:min-keyint=4:scenecut=0:b-adapt=0"
X265 = f"{X264}:log-level=none:pools=1:frame-threads=1"
TIMES = constant_times(FRAMES)
KEYS = frozenset(range(0, FRAMES, GOP))
MPEG2 = {"time_base": Fraction(1, 25), "encoder": "mpeg2video", "options": (("bf", "2"),)}


def of_x264(options: str, times: tuple[int, ...] = TIMES) -> Clip:
    """Return a clip made with these options of x264."""
    return Clip(times=times, options=(("x264-params", f"{X264}:{options}"),))


CLIPS = {
    "open.mkv": of_x264("bframes=3:open-gop=1"),
    "hevc.mp4": Clip(times=TIMES, encoder="libx265", options=(("x265-params", f"{X265}:bframes=4:open-gop=1"),)),
    "vp9.webm": Clip(times=TIMES, keyframes=KEYS, encoder="libvpx-vp9", options=(("lag-in-frames", "8"),)),
    "mpeg2.ts": Clip(times=tuple(range(FRAMES)), keyframes=KEYS, **MPEG2),  # type: ignore[arg-type]
}
