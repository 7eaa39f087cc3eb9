"""For wanted pictures, NVDEC feeds, copies and keeps no more than needed, and the session stays warm."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.decode.wanted import WantedPictures
from codecfleet.errors import EngineFailed
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice

if TYPE_CHECKING:
    from av.packet import Packet

    from codecfleet.actors.surfaces.device_frame import DevicePicture

COUNT = 24
CLIP = Clip(
    times=constant_times(COUNT), options=(("x264-params", "keyint=24:scenecut=0:bframes=2:b-adapt=0:b-pyramid=none"),)
)
"""One group of pictures; no other picture refers to two of every three."""
PRIMED = 1
"""How many packets a new session decodes before its range: the first packet, as a trial."""


@dataclass(frozen=True, slots=True)
class Film:
    """A clip, its times in presentation order, and its pictures."""

    path: Path
    times: list[int]
    pictures: list[PictureHash]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Film:
    """The clip, decoded in software."""
    path = make_clip(tmp_path_factory.mktemp("clips") / "clip.mkv", CLIP)
    pictures = [picture_hash(each.pts or 0, each) for _, each in _decode(SOFTWARE, path, None)]
    return Film(path, [each.ticks for each in pictures], pictures)


def _decode(
    decoder: PictureDecoder[Any],
    path: Path,
    times: frozenset[int] | None,
    on_packet: Callable[[int], object] = bool,
    tally: DecodeTally | None = None,
    *,
    by_packet: bool = True,
) -> Iterator[tuple[int | None, Any]]:
    def packets() -> "Iterator[tuple[int, Packet[Any]]]":
        for number, packet in enumerate(container.demux(stream)):
            on_packet(number)
            if packet.size:
                yield number, packet

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        wanted = None if times is None else WantedPictures(times, by_packet=by_packet)
        track = OpenTrack(stream, stream.codec_context, wanted)
        yield from decoder.decode(track, packets(), tally or DecodeTally())


@settings(max_examples=25)
@given(chosen=st.sets(st.integers(0, COUNT - 1), min_size=1))
def test_each_wanted_picture_is_copied_once(film: Film, chosen: set[int]) -> None:
    """Wanted pictures equal those of software, on the device and on the host, and no other surface is copied."""
    device = FakeDevice()
    expected = [film.pictures[number] for number in sorted(chosen)]
    times = frozenset(each.ticks for each in expected)

    on_host = [picture_hash(each.pts, each) for _, each in _decode(device.gpu.pictures, film.path, times)]
    assert device.driver.calls["cuMemcpyDtoHAsync"] == len(chosen)
    on_device: list[DevicePicture] = [each for _, each in _decode(device.gpu.surfaces, film.path, times)]
    assert device.driver.calls["cuMemcpyDtoDAsync"] == len(chosen)

    with closing(device.gpu.open_mover()) as mover:
        assert on_host == expected == [picture_hash(each.pts or 0, mover.to_host(each)) for each in on_device]


@pytest.mark.parametrize(("number", "fed"), [(0, 1), (1, 3), (3, 2), (COUNT - 1, 9)])
def test_nothing_is_fed_that_a_wanted_picture_does_not_need(film: Film, number: int, fed: int) -> None:
    """Unwanted pictures to which no other refers are not fed, nor are packets after the last wanted picture's."""
    device, tally = FakeDevice(), DecodeTally()
    found = list(_decode(device.gpu.pictures, film.path, frozenset({film.times[number]}), tally=tally))
    assert [picture_hash(each.pts, each) for _, each in found] == [film.pictures[number]]
    assert (device.decoder.pictures - PRIMED, tally.frames) == (fed, fed)


@pytest.mark.parametrize("by_packet", [True, False])
def test_a_caller_with_all_its_pictures_may_stop(film: Film, *, by_packet: bool) -> None:
    """The session is flushed before the last picture comes, so a caller may stop there without losing the session."""
    device = FakeDevice()
    for numbers in ([0], [5], [3, 9, 10], range(16), [COUNT - 1]):
        times = frozenset(film.times[number] for number in numbers)
        with closing(_decode(device.gpu.pictures, film.path, times, by_packet=by_packet)) as pictures:
            assert len(list(islice(pictures, len(numbers)))) == len(numbers)
    assert device.decoder.decoders_made == 1


@pytest.mark.parametrize("packet", [1, 4])
def test_a_wrong_picture_is_reported_before_the_last_wanted_one_comes(film: Film, packet: int) -> None:
    """A wrong picture, even an unwanted one, is reported before a caller can stop at the last wanted picture."""
    device = FakeDevice()

    def report(number: int) -> None:
        device.decoder.wrong_pictures += number == packet

    pictures = _decode(device.gpu.pictures, film.path, frozenset({film.times[0], film.times[6]}), report)
    found = []
    with pytest.raises(EngineFailed, match="wrong pictures"):
        found.extend(pictures)
    assert found == []


def test_an_unwanted_picture_that_does_not_come_is_missed(film: Film) -> None:
    """A missing unwanted picture is an error, because a wanted picture may refer to it."""
    device = FakeDevice()
    device.decoder.left_out = frozenset({PRIMED + 1})
    with pytest.raises(EngineFailed, match="left out 1 pictures"):
        list(_decode(device.gpu.pictures, film.path, frozenset({film.times[9]})))
