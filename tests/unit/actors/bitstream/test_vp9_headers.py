"""Frames of VP9 packets: whether they are shown, and their size, compared with a decoder."""

from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.vp9 import Vp9Colours, Vp9Frame, vp9_frames
from codecfleet.testing.clips import Clip, constant_times, make_clip

HIDING = (("auto-alt-ref", "1"), ("lag-in-frames", "25"), ("b", "200k"), ("deadline", "realtime"), ("cpu-used", "5"))
FAST = (("deadline", "realtime"), ("cpu-used", "8"))


def _packets(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield a clip's packets, and the number of pictures that a software decoder returns for each."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for packet in container.demux(stream):
            if packet.size:
                yield bytes(packet), len(stream.codec_context.decode(packet))


def _clip(folder: Path, frames: int = 8, **changes: object) -> Path:
    wanted = {"options": FAST, **changes}
    clip = Clip(times=constant_times(frames), encoder="libvpx-vp9", **wanted)  # type: ignore[arg-type]
    return make_clip(folder / "clip.webm", clip)


def _superframe(*frames: bytes, size_bytes: int = 4) -> bytes:
    """Join frames as annex B of the VP9 specification does."""
    marker = bytes([0b11000000 | (size_bytes - 1) << 3 | (len(frames) - 1)])
    sizes = b"".join(len(frame).to_bytes(size_bytes, "little") for frame in frames)
    return b"".join(frames) + marker + sizes + marker


def test_hidden_frames_of_a_real_stream_are_not_shown(tmp_path: Path) -> None:
    """Superframes with alternate references show as many pictures as a decoder returns."""
    hidden = 0
    for data, given_ in _packets(_clip(tmp_path, frames=60, options=HIDING)):
        frames = list(vp9_frames(data))
        assert sum(frame.is_shown for frame in frames) == given_ == 1
        hidden += len(frames) - given_
    assert hidden > 0


@pytest.mark.parametrize(("width", "height"), [(64, 48), (16, 16), (98, 34), (66, 130)])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p", "yuv440p", "yuv444p"])
def test_keyframes_state_their_size(tmp_path: Path, pix_fmt: str, width: int, height: int) -> None:
    """Key frames state the coded size; other frames take the size from their references."""
    path = _clip(tmp_path, frames=4, width=width, height=height, pix_fmt=pix_fmt)
    first, *rest = [frame for data, _ in _packets(path) for frame in vp9_frames(data)]
    assert first == Vp9Frame(is_shown=True, size=(width, height), colours=Vp9Colours(2, 1))
    assert rest
    assert all((frame.size, frame.colours) == (None, None) for frame in rest)


def test_rgb_states_its_size(tmp_path: Path) -> None:
    """The colour space sRGB states no range and no sampling, and the size is still found."""
    first, *_ = [frame for data, _ in _packets(_clip(tmp_path, pix_fmt="gbrp")) for frame in vp9_frames(data)]
    assert (first.size, first.colours) == ((64, 48), Vp9Colours(0, 2))


@given(data=st.binary(max_size=80), marker=st.integers(0b11000000, 0b11011111))
def test_noise_never_raises(data: bytes, marker: int) -> None:
    """Any packet gives at most eight frames, even a superframe with wrong sizes."""
    index = bytes([marker])
    for packet in (data, index + data + index):
        assert 1 <= len(list(vp9_frames(packet))) <= 8


@given(shown=st.lists(st.booleans(), min_size=1, max_size=8), size_bytes=st.integers(1, 4), tail=st.binary(max_size=20))
def test_a_superframe_is_its_frames(shown: list[bool], size_bytes: int, tail: bytes) -> None:
    """Each frame of a superframe is read separately, in order, whatever the width of the size fields."""
    frames = [_key(64, 48, is_shown=each) + tail for each in shown]
    found = list(vp9_frames(_superframe(*frames, size_bytes=size_bytes)))
    assert found == [Vp9Frame(each, (64, 48), Vp9Colours(5, 1)) for each in shown]


class _Bits:
    """Writes numbers, most significant bit first."""

    def __init__(self) -> None:
        self._text = ""

    def put(self, value: int, count: int = 1) -> "_Bits":
        """Append ``count`` bits."""
        self._text += f"{value:0{count}b}" if count else ""
        return self

    def data(self) -> bytes:
        """Return the written bits, with zeros and more bytes after them."""
        padded = self._text + "0" * (-len(self._text) % 8)
        return int(padded, 2).to_bytes(len(padded) // 8, "big") + bytes(4)


def _start(profile: int, *, inter: bool, shown: bool, resilient: bool = False) -> _Bits:
    bits = _Bits().put(2, 2).put(profile & 1).put(profile >> 1).put(0, int(profile == 3)).put(0)
    return bits.put(int(inter)).put(int(shown)).put(int(resilient))


def _key(width: int, height: int, *, profile: int = 0, colours: int = 1, is_shown: bool = True) -> bytes:
    bits = _start(profile, inter=False, shown=is_shown).put(0x498342, 24).put(0, int(profile >= 2)).put(colours, 3)
    if colours != 7:
        bits.put(0)
    bits.put(0, 0 if profile not in (1, 3) else 1 if colours == 7 else 3)
    return bits.put(width - 1, 16).put(height - 1, 16).data()


sides = st.integers(1, 1 << 16)


@given(width=sides, height=sides, profile=st.integers(0, 3), colours=st.integers(0, 7), shown=st.booleans())
def test_any_size_of_a_keyframe_is_read(width: int, height: int, profile: int, colours: int, *, shown: bool) -> None:
    """For every profile and colour space, a size is the written number plus one, at most 65536."""
    data = _key(width, height, profile=profile, colours=colours, is_shown=shown)
    matrix, range_ = {0: 2, 1: 5, 2: 1, 3: 6, 4: 7, 5: 9, 6: 3, 7: 0}[colours], 2 if colours == 7 else 1
    assert list(vp9_frames(data)) == [Vp9Frame(shown, (width, height), Vp9Colours(matrix, range_))]


@given(
    width=sides,
    height=sides,
    refresh=st.integers(0, 255),
    references=st.integers(0, 4095),
    found=st.integers(0, 3),
    shown=st.booleans(),
    resilient=st.booleans(),
)
def test_an_inter_frame_has_its_own_size_or_a_references(
    width: int, height: int, refresh: int, references: int, found: int, *, shown: bool, resilient: bool
) -> None:
    """A size is stated only if it is not taken from a reference (frame_size_with_refs)."""
    bits = _start(0, inter=True, shown=shown, resilient=resilient)
    bits.put(0, int(not shown)).put(0, 0 if resilient else 2).put(refresh, 8).put(references, 12)
    for _ in range(found):
        bits.put(0)
    if found < 3:
        bits.put(1)
    data = bits.put(width - 1, 16).put(height - 1, 16).data()
    (frame,) = vp9_frames(data)
    assert frame == Vp9Frame(shown, (width, height) if found == 3 else None)


@given(width=sides, height=sides, profile=st.integers(0, 3), resilient=st.booleans())
def test_a_hidden_intra_frame_states_its_size(width: int, height: int, profile: int, *, resilient: bool) -> None:
    """In every profile, an intra-only frame states its size, after the colour fields if the profile has them."""
    bits = _start(profile, inter=True, shown=False, resilient=resilient).put(1).put(0, 0 if resilient else 2)
    bits.put(0x498342, 24)
    if profile:
        bits.put(0, int(profile >= 2)).put(2, 3).put(0).put(0, 3 if profile in (1, 3) else 0)
    data = bits.put(5, 8).put(width - 1, 16).put(height - 1, 16).data()
    assert list(vp9_frames(data)) == [Vp9Frame(is_shown=False, size=(width, height))]


def test_a_frame_that_is_shown_again_counts() -> None:
    """``show_existing_frame`` shows a picture with the size at which it was coded."""
    data = _Bits().put(2, 2).put(0).put(0).put(1).put(3, 3).data()
    assert list(vp9_frames(data)) == [Vp9Frame(is_shown=True, size=None)]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x82", _key(64, 48)[:6], b"\x49\x83\x42"])
def test_what_is_cut_short_is_not_shown(data: bytes) -> None:
    """A truncated header, or other data, shows no picture."""
    assert list(vp9_frames(data)) == [Vp9Frame(is_shown=False, size=None)]
