"""Surfaces and planes: unpacking a surface gives the packed picture, for every layout, depth and size."""

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher, Unpacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.actors.surfaces.host_pictures import apply_colour, planar_picture, plane_samples
from codecfleet.testing.clips import Clip, constant_times, make_clip, turned_over
from codecfleet.testing.nvidia.fake_cuda import FakeCudaCore, FakeCudaDriver
from codecfleet.testing.nvidia.surface_decoder import surface_of

PIX_FMTS = [f"yuv{chroma}p{depth}" for chroma in (420, 422, 444) for depth in ("", "10le", "12le")]
PIX_FMTS += [f"yuvj{chroma}p" for chroma in (420, 422, 444)]


def layout_of(pix_fmt: str) -> SurfaceFormat:
    """Return the surface format for pictures of a pixel format."""
    found = surface_format(pix_fmt)
    assert found is not None
    return found


@st.composite
def pictures(draw: st.DrawFn) -> VideoFrame:
    """Return a picture of noise, of any format and size, in which any significant bits are set."""
    pix_fmt = draw(st.sampled_from(PIX_FMTS))
    format_ = layout_of(pix_fmt)
    width = draw(st.integers(1, 70)) << format_.halved_across
    height = draw(st.integers(1, 20)) << format_.halved_down
    picture = VideoFrame(width, height, pix_fmt)
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    for samples in plane_samples(picture, format_):
        samples[:] = random.integers(0, 1 << format_.bits, samples.shape)
    return picture


def digest(picture: VideoFrame) -> bytes:
    """Return a digest that distinguishes pictures."""
    return picture_hash(0, picture).digest


@given(picture=pictures(), junk=st.integers(0, 15))
def test_only_the_upper_bits_of_a_sample_count(picture: VideoFrame, junk: int) -> None:
    """Bits below the significant ones of a 16-bit sample change nothing."""
    format_ = layout_of(picture.format.name)
    surface = surface_of(picture, format_).copy()
    if format_.sample_bytes == 2:
        surface.view(np.uint16)[:] |= np.uint16(junk & (1 << 16 - format_.bits) - 1)
    again = planar_picture(surface, format_, picture.width, picture.height, picture.format.name)
    assert digest(again) == digest(picture)


@given(picture=pictures())
def test_a_picture_does_not_live_in_its_surface(picture: VideoFrame) -> None:
    """Overwriting the surface does not change the picture."""
    format_ = layout_of(picture.format.name)
    surface = surface_of(picture, format_).copy()
    again = planar_picture(surface, format_, picture.width, picture.height, picture.format.name)
    surface[:] = 0x55
    assert digest(again) == digest(picture)


def test_chroma_is_taken_apart_as_the_sdk_lays_it_out() -> None:
    """Cb comes before Cr, in pairs if chroma is halved across, otherwise in planes; the upper bits are significant."""
    nv12 = np.array([*range(8), 100, 200, 101, 201], dtype=np.uint8)
    luma, blue, red = (plane.tolist() for plane in _planes(nv12, "yuv420p", 4, 2))
    assert (luma, blue, red) == ([[0, 1, 2, 3], [4, 5, 6, 7]], [[100, 101]], [[200, 201]])
    p216 = (np.array([1, 2, 3, 4, 500, 900, 501, 901], dtype=np.uint16) << 6).view(np.uint8)
    luma, blue, red = (plane.tolist() for plane in _planes(p216, "yuv422p10le", 2, 2))
    assert (luma, blue, red) == ([[1, 2], [3, 4]], [[500], [501]], [[900], [901]])
    yuv444 = (np.array([1, 2, 3, 4, 5, 6, 7, 8, 4095], dtype=np.uint16) << 4).view(np.uint8)
    luma, blue, red = (plane.tolist() for plane in _planes(yuv444, "yuv444p12le", 3, 1))
    assert (luma, blue, red) == ([[1, 2, 3]], [[4, 5, 6]], [[7, 8, 4095]])


def _planes(surface: NDArray[np.uint8], pix_fmt: str, width: int, height: int) -> Iterator[NDArray[np.uint16]]:
    format_ = layout_of(pix_fmt)
    return plane_samples(planar_picture(surface, format_, width, height, pix_fmt), format_)


class Fetching:
    """A fetcher of one format on a fake device, and surfaces on the device."""

    def __init__(self, picture: VideoFrame, *, has_kernel: bool, attributes: dict[int, int] | None = None) -> None:
        self.driver = FakeCudaDriver(**({} if attributes is None else {"attributes": attributes}))
        self.cuda = Cuda(self.driver)
        self.format = layout_of(picture.format.name)
        self.stream = self.cuda.stream()
        self.fetcher = PictureFetcher(
            self.cuda,
            PinnedMemory(self.cuda),
            Unpacker(FakeCudaCore, self.cuda) if has_kernel else None,
            format_=self.format,
            size=(picture.width, picture.height),
            pix_fmt=picture.format.name,
        )

    def put(self, picture: VideoFrame) -> int:
        """Copy a picture's surface to the device; return its address."""
        surface = surface_of(picture, self.format)
        address = self.cuda.allocate(len(surface))
        self.fill(address, surface)
        return address

    def fetched(self, surfaces: list[int]) -> list[VideoFrame]:
        """Return the pictures of surfaces, after the stream is done."""
        begun = [self.fetcher.begin(surface, self.stream) for surface in surfaces]
        self.stream.wait()
        return [picture() for picture in begun]

    def fill(self, address: int, surface: NDArray[np.uint8]) -> None:
        """Overwrite a surface."""
        self.driver.memory[address][:] = surface.tobytes()


@pytest.mark.parametrize("has_kernel", [False, True], ids=["host", "kernel"])
@given(picture=pictures(), count=st.integers(1, 4))
def test_surfaces_of_a_device_come_as_pictures(picture: VideoFrame, count: int, *, has_kernel: bool) -> None:
    """Pictures are the same with or without the device's kernel, several at once, and do not change later."""
    fetching = Fetching(picture, has_kernel=has_kernel)
    addresses = [fetching.put(picture) for _ in range(count)]
    first = fetching.fetched(addresses)
    for address in addresses:
        fetching.fill(address, np.full(fetching.format.size_bytes(picture.width, picture.height), 0x3C, np.uint8))
    second = fetching.fetched(addresses[:1])
    fetching.fetcher.close()
    assert [digest(each) for each in first] == [digest(picture)] * count
    assert digest(second[0]) != digest(picture) or picture.width * picture.height < 4
    assert all((each.width, each.height, each.format.name) == _shape(picture) for each in first)


COHERENT, NOT_COHERENT = ({18: 1, 75: major, 76: minor} for major, minor in ((7, 2), (6, 2)))
"""Attributes of Xavier's and TX2's integrated GPUs."""


@pytest.mark.parametrize("attributes", [COHERENT, NOT_COHERENT], ids=["pinned", "managed"])
@given(picture=pictures())
def test_an_integrated_gpu_writes_where_the_processor_reads(picture: VideoFrame, attributes: dict[int, int]) -> None:
    """Nothing is copied, and the pictures are the same; managed memory is attached to the GPU only for the kernel."""
    fetching = Fetching(picture, has_kernel=True, attributes=attributes)
    first, second = fetching.fetched([fetching.put(picture) for _ in range(2)])
    assert [digest(first), digest(second)] == [digest(picture)] * 2
    assert "cuMemcpyDtoHAsync" not in fetching.driver.calls
    managed = attributes is NOT_COHERENT
    assert fetching.driver.calls.get("cuMemAllocManaged", 0) == (2 if managed else 0)
    assert fetching.driver.calls.get("cuStreamAttachMemAsync", 0) == (4 if managed else 0)
    assert set(fetching.driver.attached.values()) <= {2}, "idle memory is the processor's"
    fetching.fetcher.close()


def _shape(picture: VideoFrame) -> tuple[int, int, str]:
    return picture.width, picture.height, picture.format.name


@pytest.mark.parametrize("has_kernel", [False, True], ids=["host", "kernel"])
@given(picture=pictures())
def test_a_fetched_picture_is_as_good_as_software_s(picture: VideoFrame, *, has_kernel: bool) -> None:
    """Filters and encoders treat a fetched picture like the original."""
    fetching = Fetching(picture, has_kernel=has_kernel)
    (fetched,) = fetching.fetched([fetching.put(picture)])
    wanted = picture.reformat(34, 22, format="yuv420p")
    assert digest(fetched.reformat(34, 22, format="yuv420p")) == digest(wanted)
    fetched.pts = 7
    assert fetched.pts == 7


def test_a_closed_fetcher_keeps_no_device_memory() -> None:
    """Closing a fetcher frees its device memory; closing again changes nothing."""
    picture = VideoFrame(64, 48, "yuv420p")
    fetching = Fetching(picture, has_kernel=True)
    scratch = set(fetching.driver.memory)
    assert scratch
    fetching.fetcher.close()
    fetching.fetcher.close()
    assert scratch.isdisjoint(fetching.driver.memory)


@pytest.mark.parametrize(
    "params",
    ["", "colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:range=pc", "range=pc", "colormatrix=bt470bg"],
)
def test_pictures_have_the_tracks_colours(tmp_path: Path, params: str) -> None:
    """Range, matrix, primaries and transfer are those of software's pictures."""
    clip = Clip(times=constant_times(2), options=(("x264-params", params),))
    with av.open(str(make_clip(tmp_path / "clip.mp4", clip))) as container:
        stream = container.streams.video[0]
        naked = VideoFrame(64, 48, "yuv420p")
        # set before decoding, because a device's decoder never uses this context
        apply_colour(naked, stream.codec_context)
        packets = ((number, packet) for number, packet in enumerate(container.demux(stream)) if packet.size)
        _, wanted = next(SOFTWARE.decode(OpenTrack(stream, stream.codec_context), packets, DecodeTally()))
        assert _colours(naked) == _colours(wanted)


def _colours(picture: VideoFrame) -> tuple[int, ...]:
    return tuple(
        int(each) for each in (picture.color_range, picture.colorspace, picture.color_primaries, picture.color_trc)
    )


@given(picture=pictures())
def test_a_picture_that_lies_upside_down_is_read_from_its_top(picture: VideoFrame) -> None:
    """FFmpeg flips a picture by a negative line size; surfaces and arrays still begin with the top row."""
    over = turned_over(picture)
    format_ = layout_of(picture.format.name)
    again = planar_picture(surface_of(over, format_), format_, picture.width, picture.height, picture.format.name)
    for turned, rows, array in zip(plane_arrays(again), plane_arrays(picture), plane_arrays(over), strict=True):
        assert np.array_equal(turned, rows[::-1])
        assert np.array_equal(array, rows[::-1])


@given(picture=pictures(), row=st.integers(0, 39))
def test_every_row_of_a_picture_that_lies_upside_down_is_hashed(picture: VideoFrame, row: int) -> None:
    """Every row is hashed, wherever it is in memory."""
    before = digest(turned_over(picture))
    plane_arrays(picture)[0][row % picture.height, 0] ^= 1
    assert digest(turned_over(picture)) != before
