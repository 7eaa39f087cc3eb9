"""A request's quality, rates and preset give one answer on NVENC, with closed groups of pictures."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.nvenc_settings import NvencSettings, Preset, Qp, RateMode, TimingInfo
from codecfleet.actors.encode.profiles import NVENC_PROFILES, PRESETS, gop_frames
from codecfleet.actors.encode.settings import Codec, EncoderSettings, RateControl
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.settle.nvenc import EncoderCapabilities, nvenc_request
from codecfleet.actors.settle.request import encoder_kind
from codecfleet.actors.settle.request import settle as settle_request
from codecfleet.errors import EngineUnfit, Unsupported, UsageError
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc

CODECS = tuple(NVENC_PROFILES)
PICTURE = VideoFormat(128, 96, "yuv420p", Fraction(30000, 1001))


def settle(codec: Codec = Codec.H264, **changes: object) -> EncoderSettings:
    """Settle an encoder on a capable GPU."""
    picture = changes.pop("picture", PICTURE)
    capable = NvencDevice(FakeNvenc()).capabilities(Codec.HEVC if codec is Codec.VP9 else codec)
    capabilities = changes.pop("capabilities", capable)
    request = nvenc_request(codec, **changes)  # type: ignore[arg-type]
    return settle_request(request, picture, Fraction(1, 1000), capabilities)  # type: ignore[arg-type]


def native(settings: EncoderSettings) -> NvencSettings:
    """Return the NVENC settings that a worker gets."""
    assert settings.nvenc is not None
    return settings.nvenc


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_its_own_and_closed(codec: Codec, preset: int) -> None:
    """Our preset N is NVENC's PN; all groups of pictures have one length and begin with an IDR picture."""
    settings = settle(codec, preset=preset)
    found = native(settings)
    assert found.preset is Preset(f"P{preset}")
    assert found.gop == found.idrperiod == gop_frames(PICTURE.frame_rate)
    assert found.repeatspspps is (None if codec is Codec.AV1 else False)
    assert found.fps == PICTURE.frame_rate
    assert found.cq == NVENC_PROFILES[codec].default_quality
    assert settings == settle(codec, preset=preset)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("preset", PRESETS)
def test_with_a_keyframe_interval_it_makes_no_keyframe_of_its_own(codec: Codec, preset: int) -> None:
    """Groups do not end by themselves, and there is no look-ahead for scene changes; the kind has the interval."""
    settings = settle(codec, preset=preset, keyframe_interval_s=Fraction(2))
    found = native(settings)
    assert found.gop == found.idrperiod == 2**32 - 1
    assert found.lookahead is None
    kind = encoder_kind(settings, package="2.2.4", architecture="ada", driver_branch="580")
    assert kind.endswith(" keyframe_interval_s=2")


@pytest.mark.parametrize("option", ["gop", "idrperiod", "lookahead"])
def test_nothing_else_sets_keyframes_beside_an_interval(option: str) -> None:
    """A setting that would add keyframes is refused in one line that names the setting."""
    with pytest.raises(Unsupported, match=r"gop|idrperiod|look-ahead"):
        nvenc_request(Codec.H264, options=((option, "8"),), keyframe_interval_s=Fraction(2))


@given(st.integers(1000, 2**29), st.integers(1, 3), st.integers(1000, 2**30))
def test_rates_arrive_as_they_were_asked_for(bitrate: int, factor: int, bufsize: int) -> None:
    """Average, peak and buffer are those of the request, in bits; the bucket starts nine tenths full."""
    rate = RateControl(bitrate_bps=bitrate, maxrate_bps=factor * bitrate, bufsize_bits=bufsize)
    found = native(settle(rate=rate))
    assert (found.rc, found.cq) == (RateMode.VBR, None)
    assert (found.bitrate, found.maxbitrate, found.vbvbufsize) == (bitrate, factor * bitrate, bufsize)
    assert found.vbvinit == bufsize * 9 // 10


def test_a_bitrate_alone_has_a_stated_peak_and_buffer() -> None:
    """Values that the driver would choose are stated, so that they are the same everywhere."""
    found = native(settle(rate=RateControl(bitrate_bps=1_000_000)))
    assert (found.maxbitrate, found.vbvbufsize, found.vbvinit) == (2_000_000, 4_000_000, 3_600_000)


def test_av1_has_a_longer_scale() -> None:
    """The scale of AV1's target quality ends at 63."""
    assert native(settle(Codec.AV1, rate=RateControl(quality=63))).cq == 63


def test_a_device_without_b_pictures_gets_settings_without() -> None:
    """A feature that the device lacks is left out, so the encoder kind states this; nothing is ignored silently."""
    capabilities = EncoderCapabilities(Codec.HEVC, {"num_max_bframes": 0, "width_max": 4096, "height_max": 4096})
    found = native(settle(Codec.HEVC, capabilities=capabilities, preset=7))
    assert (found.bf, found.lookahead) == (0, None)


def test_what_the_device_cannot_do_is_said_when_planning() -> None:
    """Planning fails if the encoder could not open."""
    with pytest.raises(EngineUnfit, match="10-bit"):
        settle(
            picture=VideoFormat(128, 96, "yuv420p10le", Fraction(25)),
            capabilities=NvencDevice(FakeNvenc(capabilities={"h264": {"support_10bit_encode": 0}})).capabilities(
                Codec.H264
            ),
        )


@pytest.mark.parametrize("name", ["rc", "constqp", "gop", "idrperiod", "timinginfo", "vbvbufsize"])
def test_a_job_says_who_takes_what_it_refuses(name: str) -> None:
    """A job refuses settings that keep segments from being joined; the error names the function that takes them."""
    with pytest.raises(Unsupported, match=f"a job cannot set the NVENC setting {name}") as caught:
        settle(options=((name, "1"),))
    assert "codecfleet.encode" in caught.value.next_step


MODES: list[tuple[tuple[tuple[str, str], ...], RateControl | None, dict[str, object]]] = [
    ((("rc", "cbr"),), RateControl(bitrate_bps=9000), {"rc": RateMode.CBR, "bitrate": 9000, "maxbitrate": None}),
    (
        (("rc", "cbr"), ("bitrate", "9000"), ("vbvbufsize", "500")),
        None,
        {"bitrate": 9000, "vbvbufsize": 500, "cq": None},
    ),
    ((("constqp", "20,22,18"),), None, {"rc": RateMode.CONSTQP, "constqp": Qp(20, 22, 18), "multipass": None, "bf": 3}),
    ((("tuning_info", "lossless"),), None, {"rc": RateMode.CONSTQP, "constqp": Qp.same(0), "bf": None, "aq": None}),
    ((("gop", "30"),), None, {"gop": 30, "idrperiod": 30, "cq": 23}),
    ((("idrperiod", "30"),), None, {"gop": 30, "idrperiod": 30}),
    ((("gop", "30"), ("idrperiod", "90")), RateControl(quality=20), {"gop": 30, "idrperiod": 90, "cq": 20}),
    ((("timinginfo", "1/50"),), None, {"timinginfo": TimingInfo(1, 50)}),
    ((("bitrate", "9000"),), None, {"rc": RateMode.VBR, "bitrate": 9000, "maxbitrate": None, "cq": None}),
    (
        (("vbvbufsize", "500"),),
        RateControl(bitrate_bps=9000),
        {"vbvbufsize": 500, "vbvinit": None, "maxbitrate": 18000},
    ),
]


@pytest.mark.parametrize(("extra", "rate", "expected"), MODES)
def test_one_session_has_every_mode(
    extra: tuple[tuple[str, str], ...], rate: RateControl | None, expected: dict[str, object]
) -> None:
    """Requested settings are set; our settings that contradict them are left out."""
    found = native(settle(options=extra, rate=rate, single_session=True))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("extra", "rate", "kind", "named"),
    [
        ((), RateControl(quality=0), UsageError, "quality 0"),
        ((), RateControl(quality=52), UsageError, "quality 52"),
        ((), RateControl(quality=20, bitrate_bps=5000), UsageError, "exclude"),
        ((), RateControl(bitrate_bps=999), UsageError, "999"),
        ((), RateControl(bitrate_bps=5000, maxrate_bps=9000), UsageError, "belong together"),
        ((), RateControl(bitrate_bps=5000, maxrate_bps=4000, bufsize_bits=9000), UsageError, "4000"),
        ((), RateControl(quality=20, maxrate_bps=5000, bufsize_bits=5000), Unsupported, "with a quality"),
        ((("gop", "5"),), None, Unsupported, "gop"),
        ((("cq", "5"),), None, Unsupported, "cq"),
        ((("qmin", "5"),), None, Unsupported, "qmin"),
        ((("max_res", "1x1"),), None, Unsupported, "max_res"),
    ],
)
def test_what_a_job_cannot_keep_is_refused(
    extra: tuple[tuple[str, str], ...], rate: RateControl | None, kind: type[Exception], named: str
) -> None:
    """Refused are contradictory or dropped rates, settings that a job chooses, and settings without effect."""
    with pytest.raises(kind, match=named):
        settle(options=extra, rate=rate)


@pytest.mark.parametrize(
    ("extra", "rate", "kind", "named"),
    [
        ((("rc", "cbr"),), None, Unsupported, "rc=cbr needs a bitrate"),
        ((("rc", "cbr"),), RateControl(quality=20), UsageError, "contradicts"),
        ((("constqp", "20"),), RateControl(bitrate_bps=9000), UsageError, "contradicts"),
        ((("cq", "20"),), RateControl(quality=20), UsageError, "contradicts the encoder options cq=20"),
        ((("rc", "CBR"), ("bitrate", "9000")), None, Unsupported, "rc=CBR"),
        ((("codec", "hevc"),), None, Unsupported, "codec cannot be set"),
        ((("fps", "25"),), None, Unsupported, "fps cannot be set"),
        ((("gop", "30"), ("idrperiod", "40")), None, Unsupported, "not a multiple of gop"),
    ],
)
def test_modes_that_contradict_each_other_are_refused(
    extra: tuple[tuple[str, str], ...], rate: RateControl | None, kind: type[Exception], named: str
) -> None:
    """Contradictory modes are refused by name before an encoder is made."""
    with pytest.raises(kind, match=named):
        settle(options=extra, rate=rate, single_session=True)


def test_extra_options_override_ours() -> None:
    """A user's setting overrides that of the preset."""
    assert native(settle(options=(("aq", "9"), ("bf", "1")))).aq == 9


def test_what_nvenc_does_not_encode_is_refused() -> None:
    """VP9, other pixel formats and unknown presets are refused; the message states the alternatives."""
    with pytest.raises(Unsupported, match="vp9"):
        settle(Codec.VP9)
    with pytest.raises(Unsupported, match="av1 in yuv444p"):
        settle(Codec.AV1, picture=VideoFormat(128, 96, "yuv444p", Fraction(25)))
    with pytest.raises(Unsupported, match="yuv420p of 127x96"):
        settle(picture=VideoFormat(127, 96, "yuv420p", Fraction(25)))
    with pytest.raises(Unsupported, match="gray"):
        settle(picture=VideoFormat(128, 96, "gray", Fraction(25)))
    with pytest.raises(UsageError, match="preset 8"):
        settle(preset=8)
