"""The films to mutate: small clips of several containers and codecs, made here, and the shared footage, if present."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import numpy as np
from av.audio.stream import AudioStream

from codecfleet.testing.clips import Clip, constant_times, make_clip, picture

FOOTAGE: Final = Path(__file__).resolve().parents[3] / "shared" / "media"
LARGEST_BYTES: Final = 300_000
"""A case with a film of this size takes about a second at most."""
_FILMS: Final = frozenset({".mp4", ".mov", ".mkv", ".webm", ".ts", ".avi", ".flv", ".ivf", ".h264", ".m2v"})
_RATE_HZ: Final = 48_000
_AAC_SAMPLES: Final = 1024
_FRAMES: Final = 25
_X264: Final = (("preset", "ultrafast"),)


def own_clips(folder: Path) -> Iterator[Path]:
    """Make clips of one second in ``folder``: video alone, with sound, fragmented, open GOP, odd sizes."""
    times, keyframes = constant_times(_FRAMES), frozenset({0, 10, 20})
    video = Clip(times=times, keyframes=keyframes, options=_X264)
    for name in ("video.mp4", "video.mkv", "video.ts", "video.avi", "video.flv"):
        yield make_clip(folder / name, video)
    yield make_clip(
        folder / "open.ts",
        Clip(
            times=constant_times(_FRAMES, step=1),
            time_base=Fraction(1, 25),
            encoder="mpeg2video",
            options=(("bf", "2"), ("b_strategy", "0")),
            keyframes=frozenset({0, 9, 18}),
        ),
    )
    for name, encoder in (("odd.webm", "libvpx"), ("odd.mkv", "libvpx-vp9")):
        options = (("deadline", "realtime"), ("cpu-used", "8"))
        yield make_clip(folder / name, Clip(times=times, encoder=encoder, options=options, width=61, height=43))
    for name, muxer in (
        ("sound.mp4", {}),
        ("sound.ts", {}),
        ("sound.mkv", {}),
        ("fragments.mp4", {"movflags": "frag_keyframe+empty_moov"}),
    ):
        yield with_sound(folder / name, muxer)


def footage() -> Iterator[Path]:
    """Yield the small files of the shared footage, if it is beside the checkout."""
    if FOOTAGE.is_dir():
        for path in sorted(FOOTAGE.iterdir()):
            if path.suffix in _FILMS and path.stat().st_size <= LARGEST_BYTES:
                yield path


def with_sound(path: Path, muxer: dict[str, str], encoder: str = "aac") -> Path:
    """Write a clip of one second with a tone that rises."""
    with av.open(str(path), "w", container_options=muxer) as container:
        video = container.add_stream("libx264", rate=25, options={**dict(_X264), "g": "10"})
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        audio = container.add_stream(encoder, rate=_RATE_HZ, layout="mono")
        for number in range(_FRAMES):
            frame = picture(number, 64, 48)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(video.encode(frame))
            for block in range(number * 2, number * 2 + 2):
                container.mux(audio.encode(_sound(audio, block)))
        container.mux(video.encode(None))
        container.mux(audio.encode(None))
    return path


def _sound(audio: AudioStream, block: int) -> av.AudioFrame:
    moments = (np.arange(_AAC_SAMPLES) + block * _AAC_SAMPLES) / _RATE_HZ
    wave = (0.3 * np.sin(2 * np.pi * (300 + 200 * moments) * moments)).astype(np.float32)
    frame = av.AudioFrame.from_ndarray(wave[np.newaxis], format="fltp", layout="mono")
    frame.sample_rate, frame.time_base = audio.codec_context.rate, Fraction(1, _RATE_HZ)
    frame.pts = block * _AAC_SAMPLES
    return frame
