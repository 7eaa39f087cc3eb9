"""Proven films of one second GOPs, made by jobs, and packages of them."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.audio.frame import AudioFrame

from codecfleet.jobs.package.cmaf import write_tracks
from codecfleet.jobs.package.values import GivenTrack, Layout, Package, PlayedKind
from codecfleet.testing.clips import picture

from .local_jobs import spec_of, transcode

SEGMENT_S = Fraction(2)


def film(
    path: Path, seconds: int = 5, rate_hz: int = 48_000, *, late_frames: int = 0, codec: str = "pcm_s16le"
) -> Path:
    """Write a film with sound, 25 pictures and a rising tone in each second.

    Pictures begin ``late_frames`` 25ths of a second after the sound.
    """
    with av.open(str(path), "w") as output:
        video = output.add_stream("libx264", rate=25, options={"preset": "ultrafast", "g": "25"})
        video.width, video.height = 64, 48
        sound = output.add_stream(codec, rate=rate_hz, layout="mono")
        for number in range(25 * seconds):
            frame = picture(number, 64, 48)
            frame.pts, frame.time_base = number + late_frames, Fraction(1, 25)
            output.mux(video.encode(frame))
            moments = np.arange(number * rate_hz // 25, (number + 1) * rate_hz // 25) / rate_hz
            wave = (8000 * np.sin(2 * np.pi * (300 + 50 * moments) * moments)).astype(np.int16)
            heard = AudioFrame.from_ndarray(wave[np.newaxis], format="s16", layout="mono")
            heard.sample_rate, heard.time_base = rate_hz, Fraction(1, rate_hz)
            heard.pts = number * rate_hz // 25
            output.mux(sound.encode(heard))
        output.mux(video.encode(None))
        output.mux(sound.encode(None))
    return path


def proven(source: Path, output: Path, **options: object) -> Path:
    """Transcode a film as a rendition of a package is made, and return the output."""
    asked: dict[str, object] = {"codec": "h264", "preset": 5, "keyframe_interval_s": Fraction(1), "audio": "aac"}
    transcode(spec_of(source, output, **(asked | options)))
    return output


def tracks_of(path: Path, prefix: str = "") -> list[GivenTrack]:
    """Return all tracks of a proven file, named after their kinds."""
    kinds = {"video": PlayedKind.VIDEO, "audio": PlayedKind.AUDIO, "subtitle": PlayedKind.TEXT}
    with av.open(str(path)) as container:
        found = [(stream.index, kinds[stream.type]) for stream in container.streams if stream.type in kinds]
    return [GivenTrack(name=f"{prefix}{kind}", path=path, stream=index, kind=kind) for index, kind in found]


def packaged(folder: Path, given: list[GivenTrack], layout: Layout = Layout.RANGES) -> Package:
    """Write tracks into a new folder."""
    folder.mkdir()
    return write_tracks(given, folder, segment_s=SEGMENT_S, layout=layout)
