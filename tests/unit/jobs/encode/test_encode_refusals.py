"""``encode`` refuses bad input with one line, and leaves nothing behind."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codecfleet
from codecfleet import EncodeFrame, RateChange, SeiMessage
from codecfleet.errors import (
    CodecfleetError,
    EngineUnfit,
    OutputExists,
    OutputUnwritable,
    Unsupported,
    UsageError,
)
from codecfleet.jobs.encode.device_inputs import find_tensor
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture
from codecfleet.testing.nvidia.fake_device import FakeDevice
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc
from tests.device_tensor import FakeDeviceTensor

from ..frame_encoding import CBR, COUNT, HEIGHT, TIMES, WIDTH, encode, failing, given, nv12, on_device, rgb, timed


class WantsGradients(FakeDeviceTensor):
    """A tensor on the device that refuses DLPack, as PyTorch's do while they want gradients."""

    def __init__(self) -> None:
        super().__init__(4096, (72, 64), item_bytes=1)

    def __dlpack__(self, **options: object) -> object:
        """Refuse."""
        del options
        message = "gradients"
        raise BufferError(message)


def refused_rates() -> Iterator[object]:
    """Yield frames, then one with new rates."""
    yield EncodeFrame(rgb(0))
    yield EncodeFrame(rgb(1), rates=RateChange(bitrate=9000))


BAD: list[tuple[object, dict[str, Any], type[Exception], str]] = [
    ([], {"fps": 25}, UsageError, "no frames"),
    ([picture(0, 64, 48)] * 2 + [picture(0, 32, 48)], {"fps": 25}, UsageError, "frame 2 is 32x48"),
    ([nv12(0), rgb(0)], {"fps": 25}, UsageError, "frame 1 is 64x48 rgb24"),
    ([rgb(0)], {}, UsageError, "has no time"),
    ([(rgb(0), 0), (rgb(0), 0)], {}, UsageError, "order"),
    ([(rgb(0), Fraction(n, d)) for n, d in ((0, 1), (1, 25), (1, 7))], {}, UsageError, "not a whole number"),
    ([(rgb(0), "soon")], {}, UsageError, "not a time in seconds"),
    ([(rgb(0), float("inf"))], {}, UsageError, "not a time in seconds"),
    ([FakeDeviceTensor(4096, (72, 64), item_bytes=2, code=2)], {"fps": 25}, UsageError, "whole numbers"),
    ([np.zeros((5, 5, 5, 5))], {"fps": 25}, UsageError, "does not determine a picture"),
    ([rgb(0)], {"fps": 25, "input_pix_fmt": "nv12"}, UsageError, "is not a picture in nv12"),
    (["a string"], {"fps": 25}, UsageError, "a str is not a picture"),
    ([nv12(0).tobytes()], {"fps": 25}, UsageError, "raw video of 4608 bytes does not state its size"),
    ([nv12(0).astype(np.float16)], {"fps": 25}, UsageError, "these are <f2"),
    ([nv12(0).astype(">u2")], {"fps": 25}, UsageError, "these are >u2"),
    ([memoryview(nv12(0).tobytes())[::2]], {"fps": 25}, UsageError, "a memoryview is not a picture"),
    ([nv12(0).tobytes()], {"fps": 25, "size": (64, 50)}, UsageError, "4608 bytes are not a picture of 64x50 in nv12"),
    ([bytes(7)], {"fps": 25, "size": (64, 48), "input_pix_fmt": "no such"}, UsageError, "raw video of no such"),
    ([bytes(7)], {"fps": 25, "size": (64, 48), "input_pix_fmt": "yuyv422"}, UsageError, "raw video of yuyv422"),
    ([rgb(0)], {"fps": 25, "size": 64}, UsageError, r"size: 64 is not \(width, height\)"),
    ([nv12(0)[:47]], {"fps": 25}, UsageError, "its sides do not fit"),
    (7, {"fps": 25}, UsageError, "a int is not a series"),
    ([rgb(0)], {"fps": 0}, UsageError, "fps: input should be greater than 0"),
    ([rgb(0)], {"fps": 29.97}, UsageError, "fps: .* needs numbers of more than 31 bits"),
    ([timed(0)], {"time_base": Fraction(1, 10**12)}, UsageError, "time_base: .* needs numbers"),
    ([rgb(0)], {"fps": 25, "bitrate_bps": "4 Mbit"}, UsageError, "bitrate_bps: '4 Mbit' is not a rate"),
    ([rgb(0)], {"fps": 25, "pix_fmt": "cuda"}, Unsupported, "cuda names a device's memory"),
    ([(rgb(0), 0), (rgb(0), 10**15)], {}, UsageError, "frame 1 is shown at tick 90000000000000000000"),
    ([np.zeros((0, 64, 3), dtype=np.uint8)], {"fps": 25}, UsageError, "is not a picture in rgb24"),
    ([WantsGradients()], {"fps": 25}, UsageError, "a WantsGradients does not say where .*: gradients"),
    ([rgb(0)], {"fps": 25, "codec": "h266"}, UsageError, "codec: 'h266' is not an allowed value"),
    ([rgb(0)], {"fps": 25, "quality": 20, "bitrate_bps": 100_000}, UsageError, "exclude each other"),
    ([rgb(0)], {"fps": 25, "codec": "vp9", "encoder": "nvenc"}, EngineUnfit, "no vp9 encoder"),
    ([rgb(0)], {"fps": 25, "pix_fmt": "yuv420p12le"}, Unsupported, "yuv420p12le"),
    ([rgb(0)], CBR, Unsupported, "only NVENC has the options rc, bitrate, and software encodes"),
    (refused_rates(), {"fps": 25}, Unsupported, "libx264 encodes at a constant quality, and has no bitrate to change"),
    ([EncodeFrame(rgb(0), sei_messages=[SeiMessage(5, b"")])], {"fps": 25, "codec": "vp9"}, Unsupported, "SEI"),
    (failing(), {"fps": 25}, RuntimeError, "fell over"),
]


@pytest.mark.parametrize(("items", "options", "kind", "reason"), BAD, ids=[case[3][:40] for case in BAD])
def test_what_cannot_be_encoded_leaves_nothing(
    tmp_path: Path, items: object, options: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    """One clear error comes before or after the first frame, and no file is left under any name."""
    with pytest.raises(kind, match=reason):
        encode(items, tmp_path / "out.mp4", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"time_s": "soon"}, {"rates": {"bitrate": 5}}, {"sei_messages": [(5, b"")]}, {"sei_messages": "x"}]
)
def test_what_is_asked_beside_a_picture_is_checked_at_once(options: dict[str, Any]) -> None:
    """Requests beside a picture are checked when the ``EncodeFrame`` is made."""
    with pytest.raises(UsageError):
        EncodeFrame(rgb(0), **options)


def test_the_output_s_name_is_checked_before_any_frame(tmp_path: Path) -> None:
    """A taken name, a missing folder, an unknown container, or one that cannot hold the codec, is refused first."""
    (tmp_path / "taken.mp4").write_bytes(b"mine")
    for name, options, kind in (
        ("taken.mp4", {}, OutputExists),
        ("absent/out.mp4", {}, OutputUnwritable),
        ("out.txt", {}, Unsupported),
        ("out.webm", {"codec": "h264"}, Unsupported),
    ):
        with pytest.raises(kind):
            encode(failing(), tmp_path / name, fps=25, **options)
    assert (tmp_path / "taken.mp4").read_bytes() == b"mine"
    assert encode([rgb(0)], tmp_path / "taken.mp4", fps=25, overwrite=True).frames_out == 1


def test_a_source_is_never_replaced_by_what_comes_of_it(tmp_path: Path) -> None:
    """A stream's frames are not encoded into the file that they come from, even with ``overwrite``."""
    film = make_clip(tmp_path / "film.mp4", Clip(times=constant_times(COUNT)))
    before = film.read_bytes()
    with pytest.raises(UsageError, match="output and input are the same file"):
        encode(codecfleet.frames(str(film), decoder="software"), film, overwrite=True)
    assert film.read_bytes() == before
    assert list(tmp_path.iterdir()) == [film]


def test_an_encoder_that_fails_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    """A device's error is raised unchanged, and the stream of frames is closed."""
    device = FakeDevice(encoder=FakeNvenc(swallow=frozenset({3})))
    items = [(on_device(device, n, "tensor"), TIMES[n]) for n in range(COUNT)]
    with pytest.raises(CodecfleetError, match="lost 1 pictures"):
        encode(items, tmp_path / "out.mp4", device)
    assert list(tmp_path.iterdir()) == []
    assert device.encoder.open_sessions == 0


def test_cancelling_leaves_nothing(tmp_path: Path) -> None:
    """A cancelled call has ended when it returns, without a trace, whether frames come from a thread or a task."""

    def endless(begun: Callable[[], object]) -> Iterator[object]:
        for number in itertools.cycle(range(COUNT)):
            yield picture(number, WIDTH, HEIGHT)
            if number == COUNT - 1:
                begun()

    async def cancel(*, in_task: bool) -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        items: Any = endless(lambda: loop.call_soon_threadsafe(begun.set))
        source = given(items) if in_task else items
        work = asyncio.ensure_future(codecfleet.encode(source, str(tmp_path / "out.mp4"), fps=25, preset=1))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    for in_task in (True, False):
        asyncio.run(cancel(in_task=in_task))
        assert list(tmp_path.iterdir()) == []


class _Plane:
    """An array on a device of which only the shape is read."""

    def __init__(self, *shape: object) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "|u1", "data": (4096, False), "version": 3}


class _Planes:
    """An object whose ``cuda()`` returns planes, or fails."""

    def __init__(self, *planes: _Plane) -> None:
        self._planes = planes

    def cuda(self) -> list[_Plane]:
        if not self._planes:
            message = "no device"
            raise OSError(message)
        return list(self._planes)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (_Plane(0, 64, 3), "holds no picture"),
        (_Plane(-6, 4), "holds no picture"),
        (_Plane("rows", 4), "does not say where its samples are"),
        (_Planes(_Plane(4, 0), _Plane(2, 0)), "holds no picture"),
        (_Planes(), "gives no planes: no device"),
    ],
)
def test_arrays_without_samples_are_refused(item: object, said: str) -> None:
    """An array without samples, or an object without planes, is refused as no picture."""
    with pytest.raises(UsageError, match=said):
        find_tensor(item)
