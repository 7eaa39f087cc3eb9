"""FFmpeg's structures behind PyAV's objects: no structure is read before it is verified."""

import io
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import av
import pytest
from av.packet import Packet
from av.stream import Stream
from av.subtitles.subtitle import BitmapSubtitle
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from codecfleet.actors.decode.picture_memory import forget_remains
from codecfleet.actors.media import av_abi
from codecfleet.errors import WorkError
from tests.subtitle_tracks import bars, pgs_packet

if TYPE_CHECKING:
    from av.subtitles.codeccontext import SubtitleCodecContext


@pytest.fixture(autouse=True)
def unproven() -> Iterator[None]:
    """Make each test, and the tests after it, verify the structures again."""
    _forget_proofs()
    yield
    _forget_proofs()


def _forget_proofs() -> None:
    for proof in (av_abi.ffmpeg, av_abi._prove_pictures):
        proof.cache_clear()
    av_abi._proven.clear()


def stream() -> Stream:
    """Return a stream of an output."""
    output = av.open(io.BytesIO(), "w", format="matroska")
    return output.add_mux_stream("hevc", width=64, height=48, time_base=Fraction(1, 25))


def decoder() -> VideoCodecContext:
    """Return a decoder that has not been opened."""
    return cast("VideoCodecContext", av.CodecContext.create("h264", "r"))


def picture() -> VideoFrame:
    """Return a picture."""
    return av.VideoFrame(32, 16, "yuv420p")


def bitmap() -> BitmapSubtitle:
    """Return a subtitle's bitmap."""
    context = cast("SubtitleCodecContext", av.CodecContext.create("pgssub", "r"))
    packet = Packet(pgs_packet((64, 48), [(3, 5, bars(16, 8))]))
    packet.pts, packet.time_base = 0, Fraction(1, 1000)
    found = context.decode2(packet)
    assert found is not None
    return cast("BitmapSubtitle", found[0])


def begin(context: VideoCodecContext) -> None:
    """Make a decoder's pictures all begin black."""
    forget_remains(context)


READERS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "stream": (stream, av_abi.structures),
    "decoder": (decoder, begin),
    "parameters": (decoder, lambda context: av_abi.configure_decoder(context, stream())),
    "picture": (picture, av_abi.frame_structure),
    "canvas": (decoder, av_abi.subtitle_canvas),
    "subtitle": (bitmap, av_abi.subtitle_palette),
}


@pytest.mark.parametrize("kind", READERS)
def test_the_known_pyav_is_read(kind: str) -> None:
    """Every structure of the pinned PyAV is verified."""
    make, read = READERS[kind]
    read(make())


@pytest.mark.parametrize("kind", sorted(READERS.keys() - {"subtitle"}))
def test_a_class_is_proven_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Later objects of a class are not copied by the kernel; their attributes are still compared."""
    make, read = READERS[kind]
    read(make())
    with monkeypatch.context() as patched:
        patched.setattr(av_abi, "_memory", lambda *_: pytest.fail("it was copied again"))
        read(make())
    with pytest.raises(WorkError, match="does not know"):
        read(SimpleNamespace(index=0, id=0, type="video"))


def test_what_is_read_is_right() -> None:
    """Structures hold the values that were set through PyAV."""
    shown = picture()
    head = av_abi.frame_structure(shown)
    assert (head.width, head.height, head.line_size[0] >= 32) == (32, 16, True)
    # BGRA; the first is transparent, the second white.
    assert av_abi.subtitle_palette(bitmap())[3:8] == b"\0" + b"\xff" * 4
    made = stream()
    found, parameters = av_abi.structures(made)
    assert (found.index, parameters.width, parameters.height) == (0, 64, 48)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("offset_bytes", [0, 8, 16, 32])
def test_a_pointer_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str, offset_bytes: int) -> None:
    """If PyAV stores a number or a Python object instead of the pointer, it is refused, and nothing crashes."""
    make, read = READERS[kind]
    made = make()
    monkeypatch.setattr(av_abi, "_FIRST_FIELD_OFFSET_BYTES", offset_bytes)
    with pytest.raises(WorkError, match="in a way that codecfleet does not know") as caught:
        read(made)
    assert "PyAV version" in caught.value.next_step


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("version", ["18.0.0", "18.2.0", "18.10.1", "19.0.0"])
def test_another_pyav_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str, version: str) -> None:
    """An untested minor version is refused before any object is read."""
    make, read = READERS[kind]
    made = make()
    monkeypatch.setattr(av, "__version__", version)
    with pytest.raises(WorkError, match=f"PyAV {version} "):
        read(made)


def test_another_ffmpeg_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyAV that was built with other major versions of FFmpeg's libraries is refused."""
    made = stream()
    monkeypatch.setattr(av, "library_versions", {**av.library_versions, "libavcodec": (63, 0, 0)})
    with pytest.raises(WorkError, match="libavcodec 63, but codecfleet knows the structures of 62"):
        av_abi.structures(made)


@pytest.mark.parametrize("read", [av_abi.structures, begin, av_abi.frame_structure, av_abi.subtitle_palette])
def test_foreign_objects_are_refused(read: Callable[[Any], object]) -> None:
    """Objects of classes other than those of PyAV are refused without being read."""
    with pytest.raises(WorkError, match="does not know"):
        read(SimpleNamespace(index=0, id=0, type="video"))


@pytest.mark.parametrize("address", [0, 8, 1 << 62, -8, 1 << 70])
def test_memory_that_is_not_there_is_no_crash(address: int) -> None:
    """Reading unmapped memory returns None."""
    assert av_abi._memory(address, 8) is None
