"""Scalable streams (PyNvVideoCodec programming guide 2.2) on the real PyNvVideoCodec and the driver simulator."""

from pathlib import Path

import av

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .simulated_driver import needs, run_on_gpu
from .test_frames import COMMON, COUNT, DECODE, answers

pytestmark = needs("PyNvVideoCodec")

LAYERS = (
    "ts_number_layers=3:ts_target_bitrate=200,400,800:ts_rate_decimator=4,2,1:ts_periodicity=4:ts_layer_id=0,2,1,2"
    ":ts_layering_mode=3"
)
"""Three layers in time: a quarter, a half and all of the pictures."""


def test_a_stream_of_several_layers_comes_to_host_and_device(tmp_path: Path) -> None:
    """NVDEC returns all pictures of VP9 in three layers, the same as software, on the host and on the device."""
    options = (("ts-parameters", LAYERS), ("deadline", "realtime"), ("lag-in-frames", "0"), ("error-resilient", "1"))
    clip = Clip(times=constant_times(COUNT), encoder="libvpx-vp9", options=options, width=192, height=160)
    film = make_clip(tmp_path / "film.mkv", clip)
    every, lowest = (decoded(film, step) for step in (1, 4))
    assert lowest == every[::4]  # the lowest layer refers to no other layer
    (found,) = answers(run_on_gpu(COMMON + DECODE, film))
    assert [each[:3] for each in found] == [[place, COUNT, True] for place in ("host", "device", "auto")]
    assert all(set(each[4]) == {"nvdec"} for each in found)


def decoded(film: Path, step: int) -> list[bytes]:
    """Return the pictures of each ``step``-th packet; the decoder does not get the other packets."""
    with av.open(str(film)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        context = stream.codec_context
        frames = [frame for packet in [*packets[::step], None] for frame in context.decode(packet)]
        return [frame.to_ndarray().tobytes() for frame in frames]
