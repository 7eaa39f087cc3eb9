"""What a frame becomes: pictures in a requested format, arrays, tensors and capsules."""

import gc
import subprocess
import sys
import weakref
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.surfaces.device_tensor import device_tensor
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.errors import Unsupported
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.surface_decoder import surface_of

from .frame_streams import source, stream, taken, told

__all__ = ["source"]


def test_frames_on_the_host_become_what_is_asked_for(source: Path) -> None:
    """Size and pixel format equal software's, planes have no padding, and NumPy takes a frame directly."""
    found = taken(stream(source, size=(30, 20), pix_fmt="rgb24"))
    assert len(found) == 48
    assert all(frame.planes[0].shape == (20, 30, 3) for frame in found)
    assert (found[0].width, found[0].height, found[0].pix_fmt) == (30, 20, "rgb24")
    assert np.array_equal(np.from_dlpack(found[7]), found[7].to_ndarray())
    assert not hasattr(found[7], "__cuda_array_interface__")
    grey = taken(stream(source, pix_fmt="gray", place="auto", end_s=Fraction(1, 10)))
    assert [plane.shape for plane in grey[0].planes] == [(48, 64)]

    first, second = found[:2]
    assert np.array_equal(np.asarray(first), first.to_ndarray())
    assert np.asarray(first, dtype=np.float32).dtype == np.float32
    assert np.stack([first, second]).shape == (2, 20, 30, 3)
    with pytest.raises(ValueError, match="only by a copy"):
        np.asarray(first, copy=False)


def test_a_picture_that_no_filter_makes_is_refused(tmp_path: Path) -> None:
    """A size that FFmpeg finds impossible at the first picture is refused."""
    tall = make_clip(tmp_path / "tall.mkv", Clip(times=constant_times(2), width=64, height=480))
    with pytest.raises(Unsupported, match="a picture of 64x480 yuv420p cannot be converted"):
        taken(stream(tall, size=(60_000, 2)))


@pytest.mark.parametrize(
    ("pix_fmt", "shapes", "dtype"),
    [
        ("nv12", [(48, 64), (24, 32, 2)], "<u1"),
        ("rgba", [(48, 64, 4)], "<u1"),
        ("gray10le", [(48, 64)], "<u2"),
        ("rgb48be", [(48, 64, 3)], ">u2"),
        ("gbrpf32le", [(48, 64)] * 3, "<f4"),
        ("rgb0", None, ""),
        ("yuyv422", None, ""),
        ("x2rgb10le", None, ""),
        ("monow", None, ""),
    ],
)
def test_planes_are_arrays_of_samples(
    source: Path, pix_fmt: str, shapes: list[tuple[int, ...]] | None, dtype: str
) -> None:
    """Each plane is an array of its samples, or refused if there is no such array."""
    frame = taken(stream(source, pix_fmt=pix_fmt, end_s=Fraction(1, 100)))[0]
    if shapes is None:
        with pytest.raises(Unsupported, match=f"the planes of {pix_fmt} are not arrays"):
            _ = frame.planes
        return
    planes = plane_arrays(frame.to_video_frame())
    assert [plane.shape for plane in planes] == shapes
    assert {plane.dtype for plane in planes} == {np.dtype(dtype)}
    if len(planes) == 1:
        assert np.array_equal(planes[0].astype(planes[0].dtype.newbyteorder("=")), frame.to_ndarray())


@pytest.mark.parametrize(
    ("pix_fmt", "size", "shapes"),
    [
        ("yuv420p", (33, 21), [(21, 33), (11, 17), (11, 17)]),
        ("yuv422p10le", (33, 20), [(20, 33), (20, 17), (20, 17)]),
        ("yuv420p12le", (32, 20), [(20, 32), (10, 16), (10, 16)]),
        ("pal8", (32, 20), None),
    ],
)
def test_what_is_not_one_array_is_refused(
    source: Path, pix_fmt: str, size: tuple[int, int], shapes: list[tuple[int, ...]] | None
) -> None:
    """Odd sides with halved chroma, and formats that PyAV cannot convert, are no single array; most have planes."""
    first = taken(stream(source, end_s=Fraction(1, 100)))[0]
    picture = VideoFrame(*size, pix_fmt)
    frame = replace(
        first, format=replace(first.format, pix_fmt=pix_fmt, width=size[0], height=size[1]), _picture=picture
    )
    with pytest.raises(Unsupported, match=f"a frame of {size[0]}x{size[1]} {pix_fmt} is .*one array"):
        frame.to_ndarray()
    assert frame.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=pix_fmt):
        np.from_dlpack(frame)
    if shapes is not None:
        assert [plane.shape for plane in frame.planes] == shapes


def test_a_source_that_no_surface_holds_is_no_frame_on_the_device(tmp_path: Path) -> None:
    """A source that cannot be on the device is refused before decoding, or stays on the host with "auto"."""
    clip = Clip(times=constant_times(3), pix_fmt="yuv411p", encoder="ffv1", options=())
    path = make_clip(tmp_path / "clip.mkv", clip)
    for options in ({}, {"pix_fmt": "yuv420p"}):
        with pytest.raises(Unsupported, match=r"frames on the device cannot be 64x48 yuv411p"):
            taken(stream(path, place="device", **options))
    assert not taken(stream(path, place="auto"))[0].on_device


def test_frames_on_the_device_become_what_is_asked_for_there(source: Path) -> None:
    """Frames are scaled on the device, the same for every decoder; formats without a surface are refused by name."""
    found = taken(stream(source, place="device", size=(48, 32)))
    assert {(frame.width, frame.height, frame.pix_fmt, frame.on_device) for frame in found} == {
        (48, 32, "yuv420p", True)
    }
    assert {frame.__cuda_array_interface__["shape"] for frame in found} == {(48, 48)}
    assert told(found) == told(taken(stream(source, place="device", decoder="software", size=(48, 32))))
    for options in ({"pix_fmt": "rgb24"}, {"size": (31, 20)}):
        with pytest.raises(Unsupported, match="frames on the device cannot be"):
            taken(stream(source, place="device", **options))


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
def test_a_frame_on_the_device_is_a_tensor(tmp_path: Path, pix_fmt: str) -> None:
    """DLPack and the CUDA array interface give a frame's memory: the rows of all planes, and each plane."""
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(3), pix_fmt=pix_fmt, encoder="libx264"))
    frame = taken(stream(path, place="device", decoder="software"))[1]
    assert frame.__dlpack_device__() == (2, 0)
    tensor = device_tensor(frame)
    picture = frame.device_picture
    assert picture is not None
    surface = surface_of(frame.to_video_frame(), picture.format)
    assert tensor.address == picture.address
    assert int(np.prod(tensor.shape)) * tensor.item_bytes == len(surface)
    assert tensor.shape[1] == 64
    interface = frame.__cuda_array_interface__
    assert (interface["shape"], interface["data"]) == (tensor.shape, (picture.address, False))
    offset = 0
    for plane in frame.planes:
        of_plane = device_tensor(plane)
        assert of_plane.address == picture.address + offset
        assert plane.__cuda_array_interface__["typestr"] == ("|u1" if of_plane.item_bytes == 1 else "<u2")
        offset += int(np.prod(of_plane.shape)) * of_plane.item_bytes
    assert offset == len(surface)


def test_a_capsule_keeps_the_memory(source: Path) -> None:
    """A frame's memory is reused only after everything made of it is gone."""
    frame = taken(stream(source, place="device", end_s=Fraction(1, 100)))[0]
    assert frame.device_picture is not None
    memory = weakref.ref(frame.device_picture.frame.owner)
    for version in (None, (1, 0), (2, 0)):
        capsules = [frame.__dlpack__(max_version=version), frame.planes[1].__dlpack__(stream=1)]
        assert ("versioned" in repr(capsules[0])) == (version is not None)
        del capsules
    capsule = frame.__dlpack__()
    del frame
    gc.collect()
    assert memory() is not None
    del capsule
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("name", ["dltensor", "used_dltensor"])
def test_capsules_and_tensors_may_outlive_the_module(name: str) -> None:
    """Capsules released when the interpreter ends, after all modules, call functions that still exist."""
    code = (
        "import ctypes, sys\n"
        "from codecfleet.actors.surfaces.frames_dlpack import DeviceArray\n"
        "class Owner:\n"
        "    device = 0\n"
        "    def used_by(self, stream): pass\n"
        "sys.kept = DeviceArray(4096, (2, 2), 1, Owner()).__dlpack__()\n"
        f"sys.name = ctypes.c_char_p({name.encode()!r})\n"
        "rename = ctypes.PyDLL(None).PyCapsule_SetName\n"
        "rename.argtypes = ctypes.py_object, ctypes.c_char_p\n"
        "rename(sys.kept, sys.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_dlpack_cannot_have_is_refused(source: Path) -> None:
    """DLPack refuses a copy, another device, and a stream that CUDA leaves open."""
    frame = taken(stream(source, place="device", end_s=Fraction(1, 100)))[0]
    for options in ({"copy": True}, {"dl_device": (1, 0)}, {"stream": 0}):
        with pytest.raises(BufferError):
            frame.__dlpack__(**options)
    assert frame.__dlpack__(copy=False, dl_device=(2, 0), stream=-1)
