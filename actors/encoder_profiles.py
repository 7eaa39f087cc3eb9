"""What each software encoder offers: presets, quality scale, pixel formats. docs/encoders.md shows the same tables."""

from dataclasses import dataclass

from .encoder_settings import Codec

__all__ = ["PRESETS", "PROFILES", "EncoderProfile", "Options"]

Options = tuple[tuple[str, str], ...]

PRESETS = range(1, 8)
"""1 is fastest, 7 slowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderProfile:
    """One software encoder.

    ``implementation`` is FFmpeg's encoder name. ``presets`` holds the options of the presets 1 to 7, in order.
    ``params_key`` is the option that carries the library's own parameters, None where there is none. ``pix_fmts`` are
    the formats whose decoded output has the same format again. ``whole_chroma`` says that the coding format has no
    way to state sizes that are not multiples of the chroma subsampling. ``shortest_side`` is the least width and
    height the encoder opens with.
    """

    codec: Codec
    implementation: str
    presets: tuple[Options, ...]
    default_quality: int
    worst_quality: int
    params_key: str | None
    pix_fmts: tuple[str, ...]
    whole_chroma: bool
    shortest_side: int


def _named(*names: str) -> tuple[Options, ...]:
    return tuple((("preset", name),) for name in names)


def _vp9(*rows: tuple[str, int]) -> tuple[Options, ...]:
    return tuple((("deadline", deadline), ("cpu-used", str(speed))) for deadline, speed in rows)


_X26X_PRESETS = _named("ultrafast", "veryfast", "fast", "medium", "slow", "slower", "veryslow")

PROFILES = {
    Codec.H264: EncoderProfile(
        codec=Codec.H264,
        implementation="libx264",
        presets=_X26X_PRESETS,
        default_quality=23,
        worst_quality=51,
        params_key="x264-params",
        pix_fmts=(
            *("yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le"),
            *("gray", "gray10le"),
        ),
        whole_chroma=True,
        shortest_side=2,
    ),
    Codec.HEVC: EncoderProfile(
        codec=Codec.HEVC,
        implementation="libx265",
        presets=_X26X_PRESETS,
        default_quality=28,
        worst_quality=51,
        params_key="x265-params",
        pix_fmts=(
            *("yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le"),
            *("yuv420p12le", "yuv422p12le", "yuv444p12le"),
            *("gbrp", "gbrp10le", "gbrp12le", "gray", "gray10le", "gray12le"),
        ),
        whole_chroma=True,
        shortest_side=16,
    ),
    Codec.AV1: EncoderProfile(
        codec=Codec.AV1,
        implementation="libsvtav1",
        presets=_named("10", "9", "8", "7", "6", "4", "2"),
        default_quality=35,
        worst_quality=63,
        params_key="svtav1-params",
        pix_fmts=("yuv420p", "yuv420p10le"),
        whole_chroma=False,
        shortest_side=4,
    ),
    Codec.VP9: EncoderProfile(
        codec=Codec.VP9,
        implementation="libvpx-vp9",
        presets=_vp9(("realtime", 8), ("realtime", 5), ("good", 5), ("good", 4), ("good", 2), ("good", 1), ("good", 0)),
        default_quality=33,
        worst_quality=63,
        params_key=None,
        pix_fmts=("yuv420p", "yuv422p", "yuv440p", "yuv444p", "gbrp"),
        whole_chroma=False,
        shortest_side=1,
    ),
}
"""Every encoder, by the format it writes."""
