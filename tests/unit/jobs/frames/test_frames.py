"""``frames``: the frames of a sequential decode, from several threads, on the host and on a fake device."""

import asyncio
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from av.video.frame import VideoFrame

import codecfleet
from codecfleet import Frame, NvdecOptions, SeiMessage
from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.decode.nvdec_options import Latency
from codecfleet.errors import (
    DeviceError,
    DeviceLost,
    EngineFailed,
    EngineUnfit,
    InputDamaged,
    InputNotFound,
    NoVideoTrack,
    Unsupported,
    UsageError,
)
from codecfleet.jobs.frames.stream import FrameStream
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice, device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

if TYPE_CHECKING:
    from codecfleet.actors.decode.decoding import VideoPacket
from ..frame_streams import GOPS, OPEN_GOPS, WAYS, no_gpu, reference, source, stream, taken, told, unordered

__all__ = ["source", "unordered"]


@pytest.mark.parametrize("name", ["film.mp4", "film.avi", "film.mkv", "film.h264"])
def test_every_container_of_the_guide_is_opened(tmp_path: Path, name: str) -> None:
    """Every container of PyNvVideoCodec's guide (2.1) gives every frame once, at its time."""
    path = make_clip(tmp_path / name, Clip(times=constant_times(24), options=GOPS))
    found = taken(stream(path))
    assert told(found) == reference(path)
    assert [frame.index for frame in found] == list(range(24))


@pytest.mark.parametrize(("place", "decoder"), WAYS)
@pytest.mark.parametrize("options", [GOPS, OPEN_GOPS])
def test_frames_are_those_of_a_sequential_decode(
    tmp_path: Path, options: tuple[tuple[str, str], ...], place: str, decoder: str
) -> None:
    """Every decoder and place gives the same frames, each once, in order, at the same times, numbered from 0."""
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(40, start=120), options=options))
    frames = stream(path, place=place, decoder=decoder)
    found = taken(frames)
    assert told(found) == reference(path)
    assert [frame.index for frame in found] == list(range(40))
    assert [frame.time_s for frame in found] == [Fraction(n * 40, 1000) for n in range(40)]
    assert {frame.on_device for frame in found} == {place != "host"}
    assert frames.report.on_device == (place != "host")
    assert (frames.report.frames, frames.report.frames_promised) == (40, 40)
    assert set(frames.report.decoded_by) == {"nvdec" if decoder == "auto" else decoder}
    assert frames.report.segments > 2


@pytest.mark.parametrize(
    ("start", "end", "every"), [(None, None, 3), (Fraction(1, 2), Fraction(3, 2), 1), (1, None, 7)]
)
def test_a_part_and_every_nth(source: Path, start: Fraction | None, end: Fraction | None, every: int) -> None:
    """A part in time, and every N-th frame of it, are the same for every decoder and place."""
    whole = reference(source)
    first = whole[0][0]
    part = [
        (ticks, digest)
        for ticks, digest in whole
        if (start or 0) <= Fraction(ticks - first, 1000) and (end is None or Fraction(ticks - first, 1000) < end)
    ]
    for place, decoder in WAYS:
        found = taken(stream(source, place=place, decoder=decoder, start_s=start, end_s=end, every=every))
        assert told(found) == part[::every]
        assert [frame.index for frame in found] == list(range(0, len(part), every))


class Doubtful(PictureDecoder[VideoFrame]):
    """Software that spoils the first pictures of ranges that begin at ``packets``, like an unclean access point."""

    name = "doubtful"

    def __init__(self, packets: set[int]) -> None:
        self.packets = packets
        self.begun: list[int] = []

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Decode."""
        first = next(packets)
        self.begun.append(first[0])

        def again() -> "Iterator[tuple[int, VideoPacket]]":
            yield first
            yield from packets

        for place, (number, frame) in enumerate(SOFTWARE.decode(track, again(), tally)):
            if first[0] in self.packets and place < 4:
                frame.planes[0].update(bytes(frame.planes[0].buffer_size))
            yield number, frame


def test_a_segment_that_begins_otherwise_is_decoded_from_further_back(source: Path) -> None:
    """If two segments differ at their seam, the later one is decoded from further back, and no frame is wrong."""
    decoder = Doubtful({16, 32})
    frames = stream(source, device_with(decoder), decoder="nvdec")
    assert told(taken(frames)) == reference(source)
    assert frames.report.entry_moves == 2
    assert {8, 24} <= set(decoder.begun)


@pytest.mark.parametrize("error", [EngineFailed("it gave up"), DeviceLost("it is gone")])
def test_a_device_that_fails_leaves_no_trace_but_a_reason(source: Path, error: DeviceError) -> None:
    """If a device fails, software decodes the segment, and all others if the device is lost; required NVDEC fails."""
    frames = stream(source, device_with(SurfaceDecoder(error, 9)))
    assert told(taken(frames)) == reference(source)
    assert set(frames.report.fallbacks) == {error.message}
    if isinstance(error, DeviceLost):
        assert frames.report.decoded_by == {"software": frames.report.segments}
    with pytest.raises(type(error), match=error.message):
        taken(stream(source, device_with(SurfaceDecoder(error, 9)), decoder="nvdec"))


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("latency", ["low", "zero"])
def test_little_latency_gives_the_same_frames(unordered: Path, place: str, latency: Latency) -> None:
    """The decoder gets the requested latency, and frames and times are the same."""
    device = FakeDevice()
    frames = stream(unordered, device.gpu, place=place, decoder="nvdec", nvdec=NvdecOptions(latency=latency))
    assert told(taken(frames)) == reference(unordered)
    assert {options["latency"] for options in device.decoder.options} == {{"low": 1, "zero": 2}[latency]}


@pytest.mark.parametrize(("options", "handed_out"), [(NvdecOptions(), 8), (NvdecOptions(latency="zero"), 11)])
def test_little_latency_backend_frames_out_before_their_segment_is_proven(
    unordered: Path, options: NvdecOptions, handed_out: int
) -> None:
    """Low latency hands frames out before their segment is proven; otherwise nothing of a broken segment comes out."""
    device = FakeDevice()
    # One picture opens the session. The first segment takes ten: eight, and two to prove the seam. Then comes the fifth
    # of the second segment, whose fourth waits for the next time.
    device.decoder.left_out = frozenset({1 + 10 + 4})
    found: list[Frame] = []

    async def read_all() -> None:
        frames = stream(unordered, device.gpu, decoder="nvdec", nvdec=options, threads=1)
        async for frame in frames:
            found.append(frame)  # noqa: PERF401 - what came before the error

    with pytest.raises(EngineFailed, match=r"left out 1 pictures|held back the picture of packet 12"):
        asyncio.run(read_all())
    assert told(found) == reference(unordered)[:handed_out]


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("size", [None, (32, 32)])
def test_notes_come_with_their_frames(unordered: Path, place: str, size: tuple[int, int] | None) -> None:
    """SEI messages and statistics come with their frame, in any memory and format, if they were requested."""
    device = FakeDevice()
    device.decoder.sei_messages = ((5, b"user data"),)
    device.decoder.statistics = {name: [7] for name in ("qp_luma", "cu_type", "mv0_x", "mv0_y", "mv1_x", "mv1_y")}
    options = NvdecOptions(sei_messages=True, statistics=True)
    found = taken(stream(unordered, device.gpu, place=place, size=size, decoder="nvdec", nvdec=options))
    assert len(found) == 24
    for frame in found:
        assert frame.notes is not None
        assert frame.notes.sei_messages == (SeiMessage(5, b"user data"),)
        assert frame.notes.statistics is not None
        assert frame.notes.statistics.first_motion == ((7, 7),)
    assert {frame.notes for frame in taken(stream(unordered, device.gpu, decoder="nvdec"))} == {None}


def test_software_has_no_options_of_nvdec() -> None:
    """Options of NVDEC require ``decoder="nvdec"``, even if NVDEC might decode alone."""
    for decoder in ("software", "auto"):
        with pytest.raises(UsageError, match=f'options for NVDEC need decoder="nvdec", and decoder is {decoder}'):
            codecfleet.frames("film.mkv", decoder=decoder, nvdec=NvdecOptions(sei_messages=True))  # type: ignore[arg-type]


def test_a_segment_that_memory_does_not_hold_is_not_a_device_s(source: Path) -> None:
    """A segment that does not fit into memory is decoded in software; a required NVDEC is an error."""
    frames = stream(source, memory_bytes=20_000)
    assert told(taken(frames)) == reference(source)
    assert frames.report.decoded_by == {"software": frames.report.segments}
    assert "too long to be held in memory" in frames.report.fallbacks[0]
    assert frames.report.held_bytes_max <= 20_000
    with pytest.raises(Unsupported, match="do not fit into the memory"):
        taken(stream(source, memory_bytes=20_000, decoder="nvdec"))


def damaged(source: Path, tmp_path: Path) -> Path:
    """Return a source in which bytes of a packet in the middle are overwritten."""
    index = read_source(str(source)).index
    data = bytearray(source.read_bytes())
    place = int(index.pos_bytes[20]) + 20
    data[place : place + 200] = bytes(200)
    path = tmp_path / "damaged.mkv"
    path.write_bytes(data)
    return path


def test_damage_is_counted_or_refused(source: Path, tmp_path: Path) -> None:
    """A damaged source gives the frames that decode, at their times, with any number of threads; ``strict`` refuses."""
    path = damaged(source, tmp_path)
    frames = stream(path, decoder="software")
    found = taken(frames)
    assert [frame.ticks for frame in found] == [ticks for ticks, _ in reference(path)]
    assert len(found) < 48
    assert told(found)[:16] == reference(source)[:16]
    assert told(found) == told(taken(stream(path, decoder="software", threads=1)))
    assert frames.report.failed_packets + frames.report.corrupt_frames > 0
    assert [frame.index for frame in found] == sorted({frame.index for frame in found})
    with pytest.raises(InputDamaged):
        taken(stream(path, decoder="software", strict=True))


def test_without_a_gpu_frames_come_to_the_host(source: Path) -> None:
    """Without a GPU software decodes and the report says why; a required GPU is an error at once."""
    frames = stream(source, no_gpu(), place="auto")
    found = taken(frames)
    assert told(found) == reference(source)
    assert frames.report.gpu_refusal == "there is no driver"
    assert not found[0].on_device
    for options in ({"place": "device"}, {"decoder": "nvdec"}):
        with pytest.raises(EngineUnfit, match="no driver"):
            taken(stream(source, no_gpu(), **options))


@pytest.mark.parametrize(
    "options",
    [
        {"place": "moon"},
        {"start_s": Fraction(2), "end_s": Fraction(1)},
        {"start_s": Fraction(-1)},
        {"size": (0, 2)},
        {"size": (10**10, 10)},
        {"size": (160, 90, 3)},
        {"size": "160by90"},
        {"size": 160},
        {"start_s": "soon"},
        {"end_s": float("inf")},
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any]) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError):
        codecfleet.frames("absent.mkv", **options)


@pytest.mark.parametrize("call", [codecfleet.frames, codecfleet.probe, lambda path: codecfleet.verify(path, "a.mp4")])
def test_what_is_not_a_path_is_refused(call: Callable[[object], object]) -> None:
    """A source that is not a path is refused with one clear line, by every function."""
    with pytest.raises(UsageError, match="source is not a path: 5"):
        call(5)


def test_what_is_wrong_with_a_source_comes_with_the_first_frame(source: Path) -> None:
    """A source's error comes with the first frame, and ends the stream."""

    async def first(frames: FrameStream) -> None:
        with pytest.raises((InputNotFound, NoVideoTrack, UsageError)):
            await anext(frames)
        with pytest.raises(StopAsyncIteration):
            await anext(frames)

    asyncio.run(first(stream(Path("absent.mkv"))))
    asyncio.run(first(stream(source, video_track=3)))
    asyncio.run(first(stream(source, start_s=Fraction(100))))
