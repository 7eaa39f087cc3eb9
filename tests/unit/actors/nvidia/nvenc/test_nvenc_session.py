"""The NVENC session over the fake package: numbers and times, reconfiguring, faults, device input."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec, EncoderSettings, RateChange, RateControl
from codecfleet.actors.media.values import SeiMessage, VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.inputs import host_input
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.surfaces.device_frame import DeviceFrame, DevicePlane, TimedPicture
from codecfleet.actors.surfaces.formats import SurfaceLayout
from codecfleet.errors import (
    CodecfleetError,
    DeviceMemory,
    EncoderFailed,
    EngineFailed,
    EngineUnfit,
    SessionLimit,
    Unsupported,
    UsageError,
)
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc
from tests.device.conversion_cases import FORMATS

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
    """Open a session on the fake."""
    return NvencSession(NvencDevice(package), settled(package), **options)  # type: ignore[arg-type]


def encoded(
    session: NvencSession, count: int, make: Callable[[int], VideoFrame | TimedPicture] = software
) -> list[EncodedPacket]:
    """Encode pictures to the end."""
    packets = [packet for number in range(count) for packet in session.encode(make(number))]
    return packets + session.finish()


def test_the_delay_of_three_pictures_is_understood() -> None:
    """Three pictures give nothing, and all of them come out in the end, each at its own time."""
    with session_of(FakeNvenc()) as session:
        early = [session.encode(software(number)) for number in range(3)]
        assert early == [[], [], []]
        assert sorted(packet.pts_ticks for packet in session.finish()) == [0, 40, 80]


def test_host_device_and_software_input_give_the_same_packets() -> None:
    """Wherever the samples lie, the picture is the same."""
    package = FakeNvenc()
    kept = {number: host_input(software(number), FORMATS["yuv420p"], 128, 96) for number in range(6)}

    def on_device(number: int) -> TimedPicture:
        address = kept[number].ctypes.data
        planes = (DevicePlane(address, 128, 128, 96), DevicePlane(address + 128 * 96, 128, 128, 48))
        frame = DeviceFrame(layout=SurfaceLayout.NV12, bits=8, width=128, height=96, planes=planes, owner=kept)
        return TimedPicture(frame, number * 40)

    with session_of(package) as session:
        wanted = encoded(session, 6)
    with session_of(package) as session:
        assert encoded(session, 6, lambda number: TimedPicture(software(number), number * 40)) == wanted
    with session_of(package, from_host=False) as session:
        assert encoded(session, 6, on_device) == wanted
    assert [made["from_host"] for made in package.made] == [True, True, False]


def test_an_encoder_is_closed_when_the_session_does_not_open() -> None:
    """A fault while opening leaves no session behind."""
    package = FakeNvenc(faults={"nvEncGetSequenceParams": 20})
    device = NvencDevice(package)
    with pytest.raises(EngineFailed):
        NvencSession(device, settled(package))
    assert (device.counts.made, device.counts.open) == (1, 0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: software(0, 0), "after one at 0"),
        (lambda: VideoFrame(128, 96, "yuv420p"), "ticks of None"),
        (lambda: TimedPicture(VideoFrame(64, 64, "yuv420p"), 99), "64x64"),
    ],
)
def test_a_picture_that_does_not_fit_is_refused(make: Callable[[], VideoFrame | TimedPicture], named: str) -> None:
    """Time, tick and size are checked, and the session goes on."""
    with session_of(FakeNvenc()) as session:
        session.encode(software(0))
        with pytest.raises(EncoderFailed, match=named):
            session.encode(make())
        session.encode(software(1))
        assert len(session.finish()) == 2


def test_a_packet_that_never_comes_is_an_error() -> None:
    """An encoder that swallows a picture does not make a short file."""
    with session_of(FakeNvenc(swallow=frozenset({2}))) as session, pytest.raises(EngineFailed, match="swallowed 1"):
        encoded(session, 6)


def test_a_picture_that_comes_later_than_the_bound_allows_is_an_error() -> None:
    """Decoding times are made from the bound on reordering, so breaking it would make a file that cannot be played."""
    package = FakeNvenc(swapped=frozenset({4}))
    with NvencSession(NvencDevice(package), settled(package, Codec.AV1)) as session:
        assert session.reorder_frames == 0
        with pytest.raises(EngineFailed, match="reordered picture 4"):
            encoded(session, 12)


def test_a_stream_that_begins_without_a_keyframe_is_an_error() -> None:
    """Without its first packet a segment could not be decoded."""
    with session_of(FakeNvenc(swallow=frozenset({0}))) as session, pytest.raises(EngineFailed, match="not a keyframe"):
        encoded(session, 6)


@pytest.mark.parametrize(
    ("function", "code", "kind"),
    [
        ("nvEncEncodePicture", 20, EngineFailed),
        ("nvEncEncodePicture", 10, DeviceMemory),
        ("nvEncLockBitstream", 8, EngineFailed),
    ],
)
def test_a_fault_while_encoding_is_one_of_ours(function: str, code: int, kind: type[CodecfleetError]) -> None:
    """Faults of the driver come out by their meaning, and the session can still be closed."""
    package = FakeNvenc()
    device = NvencDevice(package)
    with NvencSession(device, settled(package)) as session:
        package.faults[function] = code
        with pytest.raises(kind):
            encoded(session, 4)
    assert device.counts.open == 0


@pytest.mark.parametrize(("code", "kind"), [(10, SessionLimit), (2, EngineUnfit), (8, EngineUnfit)])
def test_a_fault_while_opening_is_one_of_ours(code: int, kind: type[CodecfleetError]) -> None:
    """A session that does not open says why."""
    package = FakeNvenc()
    device = NvencDevice(package, free_bytes=lambda: 1 << 40)
    settings = settled(package)
    device.capabilities(Codec.H264)
    package.faults["nvEncInitializeEncoder"] = code
    with pytest.raises(kind):
        NvencSession(device, settings)


def test_rates_change_from_our_own_copy() -> None:
    """The package's copy stays as it was made; a second change builds on the first, in every field."""
    package = FakeNvenc()
    rate = RateControl(bitrate_bps=1_000_000)
    with NvencSession(NvencDevice(package), settled(package, rate=rate)) as session:
        session.encode(software(0))
        session.reconfigure(RateChange(bitrate=500_000, maxbitrate=600_000, multipass="fullres"))
        session.reconfigure(RateChange(fps=Fraction(50), vbvbufsize=900_000, vbvinit=800_000))
        session.encode(software(1))
        session.finish()
    first, sent = package.reconfigured
    assert (first.averageBitrate, first.frameRateNum) == (500_000, 25)
    assert (sent.rateControlMode.name, sent.multiPass.name) == ("VBR", "FULL_RESOLUTION")
    assert (sent.averageBitrate, sent.maxBitRate, sent.vbvBufferSize, sent.vbvInitialDelay) == (
        *(500_000, 600_000, 900_000, 800_000),
    )
    assert (sent.frameRateNum, sent.frameRateDen, sent.targetQuality) == (50, 1, 0)


def test_a_quality_becomes_a_constant_rate_and_a_rate_a_quality() -> None:
    """A mode changes with what it needs; the peak of a constant rate is its average."""
    package = FakeNvenc()
    with session_of(package) as session:
        session.reconfigure(RateChange(rc="cbr", cq=0, bitrate=400_000, multipass="off"))
        session.reconfigure(RateChange(bitrate=200_000))
        session.reconfigure(RateChange(rc="vbr", cq=30, bitrate=0, maxbitrate=0))
    sent = [(each.rateControlMode.name, each.averageBitrate, each.maxBitRate) for each in package.reconfigured]
    assert sent == [("CBR", 400_000, 400_000), ("CBR", 200_000, 200_000), ("VBR", 0, 0)]
    assert package.reconfigured[0].multiPass.name == "DISABLED"


def test_messages_go_with_their_picture_and_change_no_number() -> None:
    """The package takes them another way than the times, and numbers pictures as before."""
    package = FakeNvenc()
    message = SeiMessage(5, b"0123456789abcdef and more")
    with session_of(package) as session:
        packets = [p for n in range(6) for p in session.encode(software(n), sei_messages=[message] if n == 3 else [])]
        packets += session.finish()
    assert sorted(packet.pts_ticks for packet in packets) == [n * 40 for n in range(6)]
    assert package.sei_messages == [(3, [({"sei_type": 5}, list(message.payload))])]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (RateChange(cq=52), "cq 52"),
        (RateChange(rc="cbr"), "cq is a target"),
        (RateChange(bitrate=5), "cq erases"),
        (RateChange(bitrate="5M"), "bitrate is a whole number, not '5M'"),  # type: ignore[arg-type]
        (RateChange(maxbitrate=1.5), "maxbitrate is a whole number"),  # type: ignore[arg-type]
        (RateChange(fps=float("inf")), "fps is a number of frames a second, not inf"),  # type: ignore[arg-type]
        (RateChange(rc="CBR"), "'CBR' is not a valid RateMode"),  # type: ignore[arg-type]
        (RateChange(multipass="half"), "'half' is not a valid Multipass"),  # type: ignore[arg-type]
        (RateChange(fps="soon"), "rates like that"),  # type: ignore[arg-type]
    ],
)
def test_changes_obey_the_rules_of_the_settings(change: RateChange, named: str) -> None:
    """What no session could be made with, none can be changed to."""
    package = FakeNvenc()
    with session_of(package) as session:
        with pytest.raises(Unsupported, match=named):
            session.reconfigure(change)
        session.encode(software(0))
        session.finish()
    assert not package.reconfigured


def test_a_refused_change_leaves_the_old_rates() -> None:
    """What the driver did not take is not in our copy."""
    package = FakeNvenc()
    with session_of(package) as session:
        package.faults["nvEncReconfigureEncoder"] = 8
        with pytest.raises(EngineFailed):
            session.reconfigure(RateChange(cq=30))
        del package.faults["nvEncReconfigureEncoder"]
        session.reconfigure(RateChange(fps=50))
    (sent,) = package.reconfigured
    assert sent.targetQuality == 23


def test_settings_of_software_are_refused() -> None:
    """A session opens with what was settled for NVENC alone."""
    package = FakeNvenc()
    with pytest.raises(UsageError, match="not settled for NVENC"):
        NvencSession(NvencDevice(package), replace(settled(package), nvenc=None))


def test_the_reorder_bound_is_the_streams_or_the_b_pictures() -> None:
    """AV1's packets come in presentation order; where H.264's parameter sets are silent, B pictures bound it."""
    package = FakeNvenc()
    for codec in (Codec.H264, Codec.HEVC, Codec.AV1):
        with NvencSession(NvencDevice(package), settled(package, codec)) as session:
            assert 0 <= session.reorder_frames <= 3
            assert (session.reorder_frames == 0) is (codec is Codec.AV1)
