"""Parts of pictures that were never decoded: their content, and their detection."""

from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from hashlib import shake_128
from itertools import islice
from pathlib import Path

import av
import pytest
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.decode.picture_memory import forget_remains, is_incomplete
from codecfleet.jobs.verify.reference.reference_decode import open_track
from codecfleet.testing.clips import Clip, constant_times, make_clip

FRAMES = 12
CUT = 7
"""The number of the picture that is half lost."""
GREY = 128
"""The value of a chroma sample without colour."""

# The first clip's pictures are small enough for memory of FFmpeg's.
CLIPS = {
    "hevc": Clip(
        times=constant_times(FRAMES),
        encoder="libx265",
        width=200,
        height=150,
        options=(("preset", "ultrafast"), ("x265-params", "ctu=16:min-cu-size=8:keyint=1:wpp=0:info=0:log-level=none")),
    ),
    "hevc 10-bit": Clip(
        times=constant_times(FRAMES),
        encoder="libx265",
        width=320,
        height=210,
        pix_fmt="yuv420p10le",
        options=(("preset", "ultrafast"), ("x265-params", "ctu=16:min-cu-size=8:keyint=1:wpp=0:info=0:log-level=none")),
    ),
    "h264 4:4:4": Clip(
        times=constant_times(FRAMES),
        width=320,
        height=210,
        pix_fmt="yuv444p",
        options=(("preset", "ultrafast"), ("x264-params", "keyint=1")),
    ),
}


@pytest.fixture(scope="module", params=CLIPS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of keyframes."""
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mkv", CLIPS[request.param])


@pytest.fixture(scope="module")
def damaged(whole: Path) -> Path:
    """Return the clip with damage: picture ``CUT`` keeps half of its bytes, and the other pictures are noise."""
    path = whole.with_name("damaged.mkv")
    with av.open(str(whole)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(packet for packet in source.demux(video=0) if packet.size):
            copy = _halved(packet) if number == CUT else packet
            copy.stream = stream
            target.mux(copy)
    return path


def _halved(packet: Packet) -> Packet:
    payload = bytes(packet)
    half = Packet(len(payload))
    noise = shake_128(payload).digest(len(payload))
    half.update(payload[: len(payload) // 2] + noise[len(payload) // 2 :])
    half.pts, half.dts, half.duration = packet.pts, packet.dts, packet.duration
    half.time_base, half.is_keyframe = packet.time_base, packet.is_keyframe
    return half


def pictures(path: Path, held: int) -> Iterator[VideoFrame]:
    """Yield a clip's pictures late, so that ``held`` of them are held while the next one is decoded."""
    holding: deque[VideoFrame] = deque()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        forget_remains(stream.codec_context)
        for frame in container.decode(stream):
            holding.append(frame)
            if len(holding) > held:
                yield holding.popleft()
        yield from holding


def shown(frames: Iterable[VideoFrame]) -> list[bytes]:
    """Return a hash of each picture."""
    return [picture_hash(0, frame).digest for frame in frames]


def range_of(path: Path) -> DecodeRange:
    """Return the whole clip."""
    return DecodeRange(source=str(path), stream_index=0, time_base=Fraction(1, 1000), nominal_ticks=Fraction(40))


def test_whole_pictures_are_complete_and_unchanged(whole: Path) -> None:
    """Fully decoded pictures are the same as when FFmpeg allocates their memory, and none is reported as damaged."""
    with av.open(str(whole)) as container:
        expected = shown(container.decode(video=0))
    found = list(pictures(whole, FRAMES))
    assert not any(is_incomplete(frame) for frame in found)
    assert shown(found) == expected


def test_what_a_lost_part_shows_depends_on_the_stream_alone(damaged: Path) -> None:
    """A lost part is the same however many pictures are held, and thus whichever buffers the decoder reuses."""
    runs = [shown(pictures(damaged, held)) for held in (0, 3, FRAMES)]
    assert runs[1:] == runs[:1] * 2


@pytest.mark.parametrize("whole", ["h264 4:4:4"], indirect=True)
def test_a_lost_part_is_black_in_every_plane(damaged: Path) -> None:
    """The second and third plane are grey in undecoded parts, also if they are as large as the first plane."""
    lost = list(pictures(damaged, 0))[CUT].to_ndarray()
    assert (lost[1:, 140:] == GREY).all()


def test_incomplete_pictures_are_named(damaged: Path) -> None:
    """Only the picture with the lost part is counted, with its time and packet."""
    tally = DecodeTally()
    assert len(list(decode_range(range_of(damaged), tally, SOFTWARE))) == FRAMES
    assert (tally.corrupt_frames, tally.damaged_ticks) == (1, [CUT * 40])
    assert tally.first_damaged_packet == CUT


def test_the_reference_decode_shows_the_same(damaged: Path) -> None:
    """``verify`` expects lost parts to have the content that a segment's decoder gives them."""
    with open_track(str(damaged)) as track:
        expected = shown(track)
    assert shown(frame for _, frame in decode_range(range_of(damaged), DecodeTally(), SOFTWARE)) == expected


@pytest.mark.parametrize("lost", [21, 22])
def test_what_h264_conceals_does_not_depend_on_where_decoding_began(tmp_path: Path, lost: int) -> None:
    """The pictures are the same whether decoding begins one or two keyframes earlier.

    With FFmpeg's own concealment, two or three pictures would differ.
    """
    x264 = (("preset", "superfast"), ("x264-params", "keyint=8:scenecut=0:bframes=0"))
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(24), width=320, height=176, options=x264))
    runs = []
    for first in (0, 8):
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            forget_remains(stream.codec_context)
            packets = islice(enumerate(container.demux(stream)), first, None)
            damaged = (_flipped(packet) if number == lost else packet for number, packet in packets)
            frames = [frame for packet in damaged for frame in packet.decode()]
        assert any(frame.is_corrupt for frame in frames)
        runs.append(shown(frames)[-8:])
    assert runs[0] == runs[1]


def _flipped(packet: Packet) -> Packet:
    payload = bytearray(bytes(packet))
    payload[len(payload) // 5] ^= 0x55
    payload[len(payload) // 5 + 1] ^= 0x55
    packet.update(bytes(payload))
    return packet


@pytest.mark.parametrize(("width", "height"), [(7, 5), (8, 8), (17, 9), (321, 241)])
def test_pictures_of_any_size_can_be_asked(tmp_path: Path, width: int, height: int) -> None:
    """A picture may be smaller than a block, or end within a block."""
    clip = Clip(times=constant_times(2), width=width, height=height, pix_fmt="yuv444p")
    assert not any(is_incomplete(frame) for frame in pictures(make_clip(tmp_path / "clip.mkv", clip), 0))


def test_pictures_in_use_stay_while_others_give_their_memory_back(tmp_path: Path) -> None:
    """Later decoders use the memory of dropped pictures only; planes of 640x360 are large enough to be kept."""
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(FRAMES), width=640, height=360))
    expected = shown(pictures(path, 0))
    held: list[VideoFrame] = []
    for number in range(4):
        held += list(pictures(path, FRAMES))[number::4]
    assert len({frame.planes[0].buffer_ptr for frame in held}) == FRAMES
    assert shown(held) == [expected[place] for number in range(4) for place in range(number, FRAMES, 4)]


@pytest.mark.parametrize("pix_fmt", ["gray", "gray10be", "yuva444p12le", "gbrp", "rgb24", "pal8", "yuyv422"])
def test_every_pixel_format_has_a_beginning(tmp_path: Path, pix_fmt: str) -> None:
    """Formats without a luma plane begin as zero bytes; fully decoded pictures are unchanged in every format."""
    path = tmp_path / "raw.nut"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("rawvideo", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 320, 240, pix_fmt
        frame = VideoFrame(320, 240, pix_fmt)
        for plane in frame.planes:
            plane.update(bytes(range(256)) * (plane.buffer_size // 256) + bytes(plane.buffer_size % 256))
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with av.open(str(path)) as container:
        expected = [bytes(plane) for plane in next(container.decode(video=0)).planes]
    (found,) = pictures(path, 0)
    assert [bytes(plane) for plane in found.planes] == expected
    assert not is_incomplete(found)


@pytest.mark.parametrize("height", [1, 2, 3])
def test_pictures_lower_than_a_block_are_whole(tmp_path: Path, height: int) -> None:
    """A picture that is too low to compare any row counts as complete."""
    times = constant_times(3)
    path = make_clip(tmp_path / "low.mov", Clip(times=times, encoder="png", width=64, height=height, pix_fmt="rgb24"))
    assert [is_incomplete(frame) for frame in pictures(path, held=0)] == [False] * len(times)
