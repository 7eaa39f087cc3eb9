"""The NVENC session on the fake package: numbers and times, reconfiguration, faults, device input."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec, EncoderSettings, RateChange, RateControl
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.surfaces.device_frame import TimedPicture
from codecfleet.errors import (
    EngineFailed,
    Unsupported,
)
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc

PICTURE = VideoFormat(128, 96, "yuv420p", Fraction(25))
TICK = Fraction(1, 1000)


def settled(package: FakeNvenc, codec: Codec = Codec.H264, rate: RateControl | None = None) -> EncoderSettings:
    """Settle NVENC's encoder for small pictures."""
    capabilities = NvencDevice(package).capabilities(codec)
    return settle(nvenc_request(codec, rate=rate), PICTURE, TICK, capabilities)


def software(number: int, pts: int | None = None) -> VideoFrame:
    """Return a software frame with its time."""
    frame = picture(number, 128, 96)
    frame.pts, frame.time_base = number * 40 if pts is None else pts, TICK
    return frame


def session_of(package: FakeNvenc, **options: object) -> NvencSession:
    """Open a session on the fake package."""
    return NvencSession(NvencDevice(package), settled(package), **options)  # type: ignore[arg-type]


def encoded(
    session: NvencSession, count: int, make: Callable[[int], VideoFrame | TimedPicture] = software
) -> list[EncodedPacket]:
    """Encode pictures to the end."""
    packets = [packet for number in range(count) for packet in session.encode(make(number))]
    return packets + session.finish()


def test_an_encoder_is_closed_when_the_session_does_not_open() -> None:
    """A fault while opening leaves no session behind."""
    package = FakeNvenc(faults={"nvEncGetSequenceParams": 20})
    device = NvencDevice(package)
    with pytest.raises(EngineFailed):
        NvencSession(device, settled(package))
    assert (device.counts.made, device.counts.open) == (1, 0)


@pytest.mark.parametrize(("swallowed", "named"), [(2, "lost 1"), (0, "not a keyframe")])
def test_a_packet_that_never_comes_is_an_error(swallowed: int, named: str) -> None:
    """If the encoder loses a picture, or the first packet is no keyframe, the session raises an error."""
    with session_of(FakeNvenc(swallow=frozenset({swallowed}))) as session, pytest.raises(EngineFailed, match=named):
        encoded(session, 6)


def test_a_picture_that_comes_later_than_the_bound_allows_is_an_error() -> None:
    """A packet that exceeds the reorder limit is an error, because decoding times are computed from that limit."""
    package = FakeNvenc(swapped=frozenset({4}))
    with NvencSession(NvencDevice(package), settled(package, Codec.AV1)) as session:
        assert session.reorder_frames == 0
        with pytest.raises(EngineFailed, match="reordered picture 4"):
            encoded(session, 12)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (RateChange(cq=52), "cq 52"),
        (RateChange(rc="cbr"), "cq is a target"),
        (RateChange(bitrate=5), "cq erases"),
        (RateChange(bitrate="5M"), "bitrate must be a whole number, not '5M'"),  # type: ignore[arg-type]
        (RateChange(maxbitrate=1.5), "maxbitrate must be a whole number"),  # type: ignore[arg-type]
        (RateChange(fps=float("inf")), "fps must be a number of frames a second, not inf"),  # type: ignore[arg-type]
        (RateChange(rc="CBR"), "'CBR' is not a valid RateMode"),  # type: ignore[arg-type]
        (RateChange(multipass="half"), "'half' is not a valid Multipass"),  # type: ignore[arg-type]
        (RateChange(fps="soon"), "fps must be a number of frames a second, not 'soon'"),  # type: ignore[arg-type]
    ],
)
def test_changes_obey_the_rules_of_the_settings(change: RateChange, named: str) -> None:
    """A session refuses a change that leads to settings with which no session can open."""
    package = FakeNvenc()
    with session_of(package) as session:
        with pytest.raises(Unsupported, match=named):
            session.reconfigure(change)
        session.encode(software(0))
        session.finish()
    assert not package.reconfigured


def test_a_refused_change_leaves_the_old_rates() -> None:
    """Rates that the driver refused are not kept."""
    package = FakeNvenc()
    with session_of(package) as session:
        package.faults["nvEncReconfigureEncoder"] = 8
        with pytest.raises(EngineFailed):
            session.reconfigure(RateChange(cq=30))
        del package.faults["nvEncReconfigureEncoder"]
        session.reconfigure(RateChange(fps=50))
    (sent,) = package.reconfigured
    assert sent.targetQuality == 23
