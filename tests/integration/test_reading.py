"""A source is read once for all purposes, and before anything else starts."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.packet import Packet
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet import TranscodeSpec
from codecfleet.actors.media.opening import demux
from codecfleet.errors import UsageError
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.probe.job import probe
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.verify.reference.reference_decode import read_timeline
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture

from .local_jobs import transcode

if TYPE_CHECKING:
    from av.container import InputContainer

X264 = (("x264-params", "bframes=0:scenecut=0"),)


def transport_stream(path: Path, *, seconds: int, with_sound: bool) -> Path:
    """Write a transport stream with or without a track of sound."""
    with av.open(str(path), "w") as container:
        # So many bytes for so few pictures that the encoder adds filler data.
        filled = {"x264-params": f"{X264[0][1]}:nal-hrd=cbr:vbv-bufsize=24000:vbv-maxrate=24000", "preset": "ultrafast"}
        video = container.add_stream("libx264", rate=25, options=filled)
        video.width, video.height, video.pix_fmt = 128, 96, "yuv420p"
        video.bit_rate = 24_000_000
        sound = container.add_stream("aac", rate=48_000, layout="mono") if with_sound else None
        for number in range(25 * seconds):
            frame = picture(number, 128, 96)
            frame.pts = number
            container.mux(video.encode(frame))
            if sound is not None:
                samples = AudioFrame.from_ndarray(np.zeros((1, 1920), np.float32), format="fltp", layout="mono")
                samples.sample_rate, samples.pts = 48_000, number * 1920
                container.mux(sound.encode(samples))
        container.mux(video.encode(None))
        if sound is not None:
            container.mux(sound.encode(None))
    return path


def test_a_plan_opens_its_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index, tracks, first picture and size come from one pass over one opening."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(60), options=X264))
    filesystem = MemoryFileSystem()
    filesystem.pipe_file("/once/clip.mkv", clip.read_bytes())
    opened: list[str] = []
    original = MemoryFileSystem._open

    def counted(self: MemoryFileSystem, path: str, *arguments: object, **options: object) -> object:
        opened.append(path)
        return original(self, path, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "_open", counted)
    spec = TranscodeSpec(source="memory://once/clip.mkv", output=str(tmp_path / "out.mkv"))
    assert plan_transcode(spec).frames == 60
    assert opened == ["/once/clip.mkv"]


def test_tracks_that_begin_later_are_left_out(tmp_path: Path) -> None:
    """A recording whose sound begins late, or ends early, is read to its end."""
    silent = transport_stream(tmp_path / "silent.ts", seconds=2, with_sound=False).read_bytes()
    whole = transport_stream(tmp_path / "whole.ts", seconds=2, with_sound=True).read_bytes()
    times = 1 + 12_000_000 // len(silent)
    film = tmp_path / "film.ts"
    film.write_bytes(silent * times + whole + silent)
    reading = read_source(str(film))
    assert len(reading.tracks.tracks) == len(probe(str(film)).tracks) == 1
    assert len(read_timeline(str(film)).times) == reading.index.packets == 50 * (times + 2)


class _EndsByFlushing:
    """A container that ends as PyAV's does if FFmpeg found a track for which PyAV has no object."""

    def demux(self, *_: object) -> Iterator[Packet]:
        """Yield two packets and an empty one, then fail."""
        yield from (Packet(b"1"), Packet(b"2"), Packet(0))
        message = "tuple index out of range"
        raise IndexError(message)


def test_the_end_of_a_recording_with_a_later_track_is_its_end() -> None:
    """PyAV's error behind the last packet loses nothing; whether it comes depends on old memory contents."""
    packets = demux(cast("InputContainer", _EndsByFlushing()))
    assert [bytes(packet) for packet in packets] == [b"1", b"2"]


class _NeverStarted(LocalPool):
    """A pool whose workers must not be requested."""

    async def start(self) -> None:
        message = "a worker was asked for"
        raise AssertionError(message)


def test_a_start_behind_the_end_is_refused_before_workers_start(tmp_path: Path) -> None:
    """The source is read first, so a start outside of it is refused at once."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(50), options=X264))
    spec = TranscodeSpec(source=str(clip), output=str(tmp_path / "out.mkv"), start_s=Fraction(100))
    with pytest.raises(UsageError, match=r"the start at 100\.0 s is after the end at 2\.000 s"):
        transcode(spec, pool=_NeverStarted())


def test_no_picture_that_decodes_is_said(tmp_path: Path) -> None:
    """A track without a decodable picture has an index, but no first picture."""
    path = tmp_path / "noise.ivf"
    with av.open(str(path), "w") as container:
        stream = container.add_mux_stream("vp8", width=64, height=48, time_base=Fraction(1, 25))
        for number in range(3):
            packet: av.Packet = av.Packet(b"\x01" * 40)
            packet.stream, packet.pts, packet.dts = stream, number, number
            container.mux_one(packet)
    reading = read_source(str(path))
    assert reading.index.packets == 3
    assert reading.picture is None
    assert "can be decoded (" in reading.undecodable
