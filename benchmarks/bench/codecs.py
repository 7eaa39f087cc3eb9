"""The compared cases: each codec with the same encoder, preset and quality for all contenders."""

from dataclasses import dataclass

__all__ = ["CASES", "CASES_BY_DEFAULT", "CodecCase"]

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecCase:
    """One encoder at one preset and quality.

    ``preset`` is on codecfleet's scale, and ``options`` are FFmpeg's equivalent (docs/encoders.md). Everything else is
    each side's default: codecfleet adds options that make its bytes the same everywhere, FFmpeg may use all cores.
    ``few_threads`` are the options that limit a process of a fan-out to ``{}`` threads. ``qualities`` are
    the four points of the quality grid; the third is ``quality``.
    """

    name: str
    codec: str
    encoder: str
    preset: int
    quality: int
    qualities: tuple[int, int, int, int]
    options: Options
    few_threads: Options
    forced_keyframes: Options = ()
    """FFmpeg's options, besides -force_key_frames, for closed GOPs at the forced keyframes."""

    def ffmpeg_options(self, quality: int) -> list[str]:
        """Return the encoder's part of an FFmpeg command line."""
        pairs = (("c:v", self.encoder), *self.options, ("crf", str(quality)))
        return as_arguments(pairs)

    def thread_options(self, threads: int) -> list[str]:
        """Return the options that limit FFmpeg's encoder threads; none for 0."""
        return as_arguments(tuple((name, value.format(threads)) for name, value in self.few_threads)) if threads else []


def as_arguments(options: Options) -> list[str]:
    """Return options as FFmpeg takes them."""
    return [part for name, value in options for part in (f"-{name}", value)]


CASES = {
    case.name: case
    for case in (
        CodecCase(
            name="x264",
            codec="h264",
            encoder="libx264",
            preset=4,
            quality=23,
            qualities=(15, 19, 23, 27),
            options=(("preset", "medium"),),
            few_threads=(("threads", "{}"),),
            forced_keyframes=(("forced-idr", "1"),),
        ),
        CodecCase(
            name="x264-veryfast",
            codec="h264",
            encoder="libx264",
            preset=2,
            quality=23,
            qualities=(15, 19, 23, 27),
            options=(("preset", "veryfast"),),
            few_threads=(("threads", "{}"),),
            forced_keyframes=(("forced-idr", "1"),),
        ),
        CodecCase(
            name="x265",
            codec="hevc",
            encoder="libx265",
            preset=4,
            quality=28,
            qualities=(20, 24, 28, 32),
            options=(("preset", "medium"), ("x265-params", "log-level=error")),
            few_threads=(("x265-params", "log-level=error:pools={}"),),
            forced_keyframes=(("forced-idr", "1"), ("x265-params", "log-level=error:open-gop=0")),
        ),
        CodecCase(
            name="svtav1",
            codec="av1",
            encoder="libsvtav1",
            preset=3,
            quality=35,
            qualities=(19, 27, 35, 43),
            options=(("preset", "8"),),
            few_threads=(("svtav1-params", "lp={}"),),
        ),
        CodecCase(
            name="vp9",
            codec="vp9",
            encoder="libvpx-vp9",
            preset=4,
            quality=33,
            qualities=(21, 27, 33, 39),
            options=(("deadline", "good"), ("cpu-used", "4"), ("row-mt", "1"), ("b:v", "0")),
            few_threads=(("threads", "{}"),),
        ),
    )
}
"""The cases by name, in the order in which they run."""

CASES_BY_DEFAULT = ("x264", "x265", "svtav1", "vp9")
"""One for each codec."""
