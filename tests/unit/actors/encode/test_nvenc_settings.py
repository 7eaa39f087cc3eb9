"""NVENC's settings: ranges, combinations, conversion to text and back, and refusals."""

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.nvenc_settings import (
    LEVELS,
    Multipass,
    NvencSettings,
    Preset,
    Qp,
    RateMode,
    Tier,
    TimingInfo,
    TuningInfo,
)
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.nvidia.nvenc.device import create_encoder_arguments
from codecfleet.actors.settle.nvenc_options import REFUSED, SETTINGS, read_option, settings_to_options
from codecfleet.errors import Unsupported

BASE = NvencSettings(bitrate=1_000_000)

whole = st.integers(1, 2**32 - 1)
small = st.integers(0, 15)
quantizers = st.builds(Qp, *([st.integers(0, 51)] * 3))


@st.composite
def settings(draw: st.DrawFn) -> NvencSettings:
    """Draw settings that the model accepts."""
    codec = draw(st.sampled_from([Codec.H264, Codec.HEVC, Codec.AV1]))
    mode = draw(st.sampled_from(RateMode))
    rates: dict[str, object] = {"constqp": draw(quantizers)}
    if mode is not RateMode.CONSTQP:
        average = draw(st.integers(1, 2**31))
        rates = {"bitrate": average, "initqp": draw(st.none() | quantizers), "qmax": draw(st.none() | quantizers)}
        rates["maxbitrate"] = average if mode is RateMode.CBR else draw(st.none() | st.integers(average, 2**32 - 1))
        rates["multipass"] = draw(st.none() | st.sampled_from(Multipass))
        rates["lookahead"] = draw(st.none() | st.integers(1, 16))
    gop = draw(st.none() | st.integers(16, 1000))
    return NvencSettings(
        codec=codec,
        preset=draw(st.sampled_from(Preset)),
        rc=mode,
        fps=draw(st.fractions(Fraction(1, 100), 1000, max_denominator=10_000)),
        gop=gop,
        idrperiod=None if gop is None else gop * draw(st.integers(1, 4)),
        bf=draw(st.none() | small),
        aq=draw(st.none() | small),
        temporalaq=draw(st.booleans()),
        ldkfs=draw(st.booleans()),
        level=draw(st.none() | st.sampled_from(sorted(LEVELS[codec]))),
        tier=None if codec is Codec.H264 else draw(st.none() | st.sampled_from(Tier)),
        timinginfo=None if codec is Codec.AV1 else draw(st.none() | st.builds(TimingInfo, whole, whole)),
        repeatspspps=draw(st.none() | (st.just(True) if codec is Codec.AV1 else st.booleans())),  # noqa: FBT003
        **rates,  # type: ignore[arg-type]
    )


def test_every_field_has_a_name_in_text() -> None:
    """Settings can be written as text for every field of the model, and for nothing else."""
    assert set(SETTINGS) == {entry.name for entry in fields(NvencSettings)}
    assert not set(SETTINGS) & set(REFUSED)


@given(settings())
def test_text_and_back_is_the_same(wanted: NvencSettings) -> None:
    """The pairs of strings in an encoder kind read back as the same settings."""
    read: dict[str, Any] = {key: read_option(key, text) for key, text in settings_to_options(wanted)}
    assert NvencSettings(**read) == wanted


@given(settings())
def test_arguments_are_plain_values_of_the_package(wanted: NvencSettings) -> None:
    """The package gets lower-case names and plain types, and always a rate mode."""
    arguments = create_encoder_arguments(wanted)
    assert set(arguments) <= set(SETTINGS) | {"global_header"}
    assert all(type(value) in (int, str, list, dict) for value in arguments.values())
    assert arguments["rc"] == wanted.rc.value
    assert ("temporalaq" in arguments) is wanted.temporalaq
    assert ("ldkfs" in arguments) is wanted.ldkfs
    assert "qmin" not in arguments


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"codec": Codec.VP9}, "VP9"),
        ({"bitrate": None}, "bitrate or cq"),
        ({"bitrate": 0}, "bitrate 0"),
        ({"bitrate": 2**32}, "bitrate"),
        ({"fps": Fraction(0)}, "fps"),
        ({"cq": 20}, "cq erases bitrate"),
        ({"bitrate": None, "cq": 20, "maxbitrate": 9}, "cq erases maxbitrate"),
        ({"bitrate": None, "cq": 20, "rc": RateMode.CBR}, "cq is a target of vbr"),
        ({"bitrate": None, "cq": 0}, "cq 0"),
        ({"bitrate": None, "cq": 52}, "cq 52"),
        ({"maxbitrate": 999_999}, "below bitrate"),
        ({"maxbitrate": 2_000_000, "rc": RateMode.CBR}, "rc=cbr has no maxbitrate"),
        ({"vbvinit": 1}, "vbvinit"),
        ({"vbvinit": 3, "vbvbufsize": 2}, "vbvinit 3"),
        ({"constqp": Qp.same(20)}, "constqp has no effect"),
        ({"rc": RateMode.CONSTQP}, "needs constqp"),
        ({"rc": RateMode.CONSTQP, "constqp": Qp.same(20)}, "bitrate controls"),
        ({"rc": RateMode.CONSTQP, "constqp": Qp.same(20), "bitrate": None, "qmax": Qp.same(9)}, "qmax controls"),
        ({"qmax": Qp(1, 2, 52)}, "qmax 52"),
        ({"tuning_info": TuningInfo.LOSSLESS}, "lossless"),
        ({"tuning_info": TuningInfo.ULTRA_HIGH_QUALITY}, "uhq"),
        ({"gop": 10, "idrperiod": 15}, "not a multiple"),
        ({"gop": 4, "bf": 4}, "does not fit a gop"),
        ({"bf": 3, "lookahead": 29}, "lookahead 29"),
        ({"lookahead": 256}, "lookahead 256"),
        ({"lookahead": 0}, "lookahead 0"),
        ({"codec": Codec.AV1, "repeatspspps": False}, "sequence header"),
        ({"aq": 16}, "aq 16"),
        ({"numrefl1": 2, "bf": 0}, "numrefl1"),
        ({"numrefl0": 7}, "numrefl0 7"),
        ({"level": "9"}, "no level 9"),
        ({"tier": Tier.HIGH}, "no tiers"),
        ({"codec": Codec.AV1, "timinginfo": TimingInfo(1, 2)}, "timinginfo"),
        ({"timinginfo": TimingInfo(0, 2)}, "num_unit_in_ticks"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    """A refusal names the value that is out of range, or the two values that exclude each other."""
    with pytest.raises(Unsupported, match=named):
        replace(BASE, **changes)  # type: ignore[arg-type]


def test_lossless_is_a_constant_quantizer_of_zero() -> None:
    """Lossless tuning requires constqp=0, and works only for H.264 and HEVC."""
    lossless = NvencSettings(tuning_info=TuningInfo.LOSSLESS, rc=RateMode.CONSTQP, constqp=Qp.same(0))
    assert create_encoder_arguments(lossless)["tuning_info"] == "lossless"
    with pytest.raises(Unsupported, match="constqp=0"):
        replace(lossless, constqp=Qp.same(1))
    with pytest.raises(Unsupported, match="AV1"):
        replace(lossless, codec=Codec.AV1)


@pytest.mark.parametrize(
    ("key", "step"),
    [
        ("slice", "software encoder"),
        ("slice::mode", "software encoder"),
        ("qmin", "qmax"),
        ("temporalAQ", "temporalaq"),
        ("timingInfo::timescale", "timinginfo"),
        ("gpuid", "number 0"),
        ("profile", "surface format"),
        ("global_header", "repeatspspps=0"),
        ("max_res", "Leave the key out"),
        ("colorspace", "matrix"),
    ],
)
def test_what_the_package_drops_or_misreads_is_refused(key: str, step: str) -> None:
    """The guide's spellings and settings that have no effect are refused; the message says what to write instead."""
    with pytest.raises(Unsupported, match=key) as caught:
        read_option(key, "1")
    assert step in caught.value.next_step


@pytest.mark.parametrize(
    ("key", "text", "step"),
    [
        ("BitRate", "5", "bitrate"),
        ("bitrat", "5", "bitrate"),
        ("look_ahead", "5", "lookahead"),
        ("preset", "p4", "preset=P4"),
        ("rc", "VBR", "rc=vbr"),
        ("codec", "H264", "codec=h264"),
        ("tuning_info", "hq", "docs/nvenc.md"),
    ],
)
def test_a_misspelling_is_answered_with_the_right_spelling(key: str, text: str, step: str) -> None:
    """A key or value that is almost right is refused; the message has the right spelling."""
    with pytest.raises(Unsupported) as caught:
        read_option(key, text)
    assert step in caught.value.next_step


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("bitrate", "5M"),
        ("bitrate", "-5"),
        ("bitrate", "5.0"),
        ("fps", "30/0"),
        ("fps", "29.97"),
        ("temporalaq", "2"),
        ("aq", "0"),
        ("constqp", "1,2"),
        ("timinginfo", "1001"),
        ("tier", "high"),
    ],
)
def test_text_that_is_no_value_is_refused(key: str, text: str) -> None:
    """Suffixes, signs, decimals and misread values are refused; the message names key and text."""
    with pytest.raises(Unsupported, match=f"{key}={text}"):
        read_option(key, text)
