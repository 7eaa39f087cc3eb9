import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codecfleet.actors.encode.pix_fmt import choose_pix_fmt
from codecfleet.actors.encode.profiles import PRESETS, PROFILES, gop_frames
from codecfleet.actors.encode.settings import Codec, EncoderSettings, RateControl
from codecfleet.actors.media.values import (
    Colour,
    ContentLight,
    HdrStatic,
    MasteringDisplay,
    VideoFormat,
    mastering_display_from_bytes,
    mastering_display_to_bytes,
)
from codecfleet.actors.settle.request import encoder_kind, with_initial_fullness
from codecfleet.actors.settle.request import settle as settle_request
from codecfleet.actors.settle.software import software_request
from codecfleet.errors import Unsupported, UsageError

PICTURE = VideoFormat(64, 64, "yuv420p", Fraction(25))
DISPLAY = MasteringDisplay(
    red=(Fraction(34000, 50000), Fraction(16000, 50000)),
    green=(Fraction(13250, 50000), Fraction(34500, 50000)),
    blue=(Fraction(7500, 50000), Fraction(3000, 50000)),
    white=(Fraction(15635, 50000), Fraction(16450, 50000)),
    max_luminance=Fraction(1000),
    min_luminance=Fraction(1, 200),
)


def settle(codec: Codec, **options: object) -> EncoderSettings:
    """Settle an encoder for small pictures."""
    picture = options.pop("picture", PICTURE)
    dolby_vision = options.pop("dolby_vision", False)
    request = replace(software_request(codec, **options), dolby_vision=dolby_vision)  # type: ignore[arg-type]
    return settle_request(request, picture, Fraction(1, 25))  # type: ignore[arg-type]


def library_parameters(settings: EncoderSettings) -> dict[str, str]:
    """Return the parameters that the encoder library gets, under the library's names."""
    text = next((value for key, value in settings.options if key.endswith("-params")), "")
    return dict(part.split("=", 1) for part in text.split(":") if "=" in part)


def test_the_presets_in_the_docs_are_those_of_the_code(repository: Path) -> None:
    """docs/encoders.md shows every preset of every encoder as in the code."""
    rows = re.findall(r"^\| (\d) \| (.*) \|$", (repository / "docs" / "encoders.md").read_text(), re.MULTILINE)
    shown = {int(number): [cell.strip() for cell in cells.split("|")] for number, cells in rows}
    assert sorted(shown) == list(PRESETS)
    for number, cells in shown.items():
        told = [" ".join(f"{key}={value}" for key, value in PROFILES[c].presets[number - 1]) for c in Codec]
        assert cells == told


@pytest.mark.parametrize("codec", Codec)
def test_every_preset_opens(codec: Codec) -> None:
    """Every encoder opens with each of its presets, and the preset is part of the encoder kind."""
    kinds = {encoder_kind(settle(codec, preset=preset)) for preset in PRESETS}
    assert len(kinds) == len(PRESETS)


@pytest.mark.parametrize("codec", Codec)
def test_a_quality_off_the_scale_is_refused(codec: Codec) -> None:
    """A quality outside the encoder's scale is a usage error."""
    with pytest.raises(UsageError, match="outside"):
        settle(codec, rate=RateControl(quality=PROFILES[codec].worst_quality + 1))


@pytest.mark.parametrize(
    ("codec", "pair"),
    [
        (Codec.H264, ("nonsense", "1")),
        (Codec.H264, ("x264-params", "nonsense=1")),
        (Codec.HEVC, ("x265-params", "nonsense=1")),
        (Codec.AV1, ("svtav1-params", "nonsense=1")),
        (Codec.VP9, ("nonsense", "1")),
    ],
)
def test_unknown_options_are_refused_by_name(codec: Codec, pair: tuple[str, str]) -> None:
    """A misspelt option, also among the library's own parameters, is an error that names the option."""
    with pytest.raises(Unsupported, match="nonsense"):
        settle(codec, options=(pair,))


def test_options_of_the_user_override_ours() -> None:
    """A user's option replaces that of the preset; library parameters are merged with ours."""
    settled = settle(Codec.H264, options=(("preset", "slow"), ("x264-params", "aq-mode=2")))
    assert dict(settled.options)["preset"] == "slow"
    assert library_parameters(settled) == {"cpu-independent": "1", "open-gop": "0", "aq-mode": "2"}


def test_what_makes_bytes_the_same_everywhere_is_set() -> None:
    """x264 does not depend on the processor, nor x265 on its threads; SVT-AV1 has one thread at a bitrate."""
    assert library_parameters(settle(Codec.H264))["cpu-independent"] == "1"
    assert library_parameters(settle(Codec.HEVC))["frame-threads"] == "1"
    limited = RateControl(bitrate_bps=100_000, maxrate_bps=100_000, bufsize_bits=100_000)
    assert library_parameters(settle(Codec.HEVC, rate=limited))["const-vbv"] == "1"
    assert library_parameters(settle(Codec.AV1, rate=RateControl(bitrate_bps=100_000)))["lp"] == "1"


def test_x265_does_not_look_ahead_in_pictures_that_its_cutree_would_overrun() -> None:
    """Up to 48 columns cutree is off, and a user cannot turn it on in any spelling; wider pictures have it."""
    narrow, wide = replace(PICTURE, width=48), replace(PICTURE, width=50)
    assert library_parameters(settle(Codec.HEVC, picture=narrow))["cutree"] == "0"
    assert "cutree" not in library_parameters(settle(Codec.HEVC, picture=wide))
    for name in ("cutree=1", "no-cutree=0"):
        options = (("x265-params", name),)
        with pytest.raises(Unsupported, match="64"):
            settle(Codec.HEVC, picture=narrow, options=options)
        settle(Codec.HEVC, picture=wide, options=options)


def test_narrow_pictures_do_not_end_the_process_that_encodes_hevc() -> None:
    """A process encodes narrow pictures with x265, and its memory stays whole."""
    script = """
from fractions import Fraction
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.settle.software import settle_software, software_request
from codecfleet.testing.clips import picture
for width, height in ((34, 32), (40, 64), (48, 32), (48, 130)):
    size, tick = VideoFormat(width, height, "yuv420p", Fraction(25)), Fraction(1, 25)
    encoder, packets = SoftwareEncoder(settle_software(software_request(Codec.HEVC, preset=1), size, tick)), 0
    for number in range(12):
        given = picture(number, width, height)
        given.pts, given.time_base = number, tick
        packets += len(encoder.encode(given))
    print(packets + len(encoder.finish()))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, ["12"] * 4), ended.stderr


def test_the_initial_fullness_reaches_the_encoder() -> None:
    """A segment's encoder gets the initial fullness of its bucket; an encoder without a bucket is unchanged."""
    limited = settle(Codec.H264, rate=RateControl(bitrate_bps=100_000, maxrate_bps=100_000, bufsize_bits=100_000))
    assert library_parameters(with_initial_fullness(limited, Fraction(1, 4)))["vbv-init"] == "0.25"
    free = settle(Codec.H264)
    assert with_initial_fullness(free, Fraction(1, 4)) == free


def test_hdr_values_reach_every_encoder_that_can_state_them() -> None:
    """HDR10's values reach each library in that library's units."""
    hdr = HdrStatic(DISPLAY, ContentLight(1000, 400))
    picture = replace(PICTURE, pix_fmt="yuv420p10le", hdr=hdr, colour=Colour(1, 9, 16, 9, 3))
    integers = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"
    assert library_parameters(settle(Codec.H264, picture=picture))["mastering-display"] == integers
    assert library_parameters(settle(Codec.HEVC, picture=picture))["master-display"] == integers
    assert library_parameters(settle(Codec.HEVC, picture=picture))["max-cll"] == "1000,400"
    reals = "G(0.265,0.69)B(0.15,0.06)R(0.68,0.32)WP(0.3127,0.329)L(1000,0.005)"
    assert library_parameters(settle(Codec.AV1, picture=picture))["mastering-display"] == reals


@pytest.mark.parametrize(
    ("codec", "wanted", "chosen", "says"),
    [
        (Codec.H264, "yuv422p10le", "yuv422p10le", None),
        (Codec.H264, "yuvj420p", "yuv420p", None),
        (Codec.H264, "yuv420p12le", "yuv420p10le", "12 bits become 10"),
        (Codec.HEVC, "yuva444p12le", "yuv444p12le", None),
        (Codec.AV1, "yuv444p", "yuv420p", "chroma loses resolution"),
        (Codec.VP9, "yuv420p10le", "yuv420p", "10 bits become 8"),
    ],
)
def test_the_pixel_format_that_loses_least_is_chosen(codec: Codec, wanted: str, chosen: str, says: str | None) -> None:
    """The source's format is used if the encoder has it, otherwise the nearest format, with the reason."""
    found, reason = choose_pix_fmt(codec, wanted, width=64, height=48)
    assert found == chosen
    assert (reason is None) if says is None else (reason is not None and says in reason)


def test_odd_sizes_keep_every_sample() -> None:
    """If a format cannot state an odd size with subsampled chroma, chroma keeps its full resolution."""
    assert choose_pix_fmt(Codec.H264, "yuv420p", width=161, height=121)[0] == "yuv444p"
    assert choose_pix_fmt(Codec.VP9, "yuv420p", width=161, height=121) == ("yuv420p", None)


def test_an_asked_for_format_has_no_substitute() -> None:
    """The format of --pix-fmt is used exactly, or refused."""
    with pytest.raises(Unsupported, match="yuv444p"):
        choose_pix_fmt(Codec.AV1, "yuv444p", width=64, height=48, asked=True)


@given(st.fractions(min_value=Fraction(1, 10), max_value=300, max_denominator=1001))
def test_keyframes_are_never_too_far_or_too_close(frame_rate: Fraction) -> None:
    """At any frame rate a group of pictures has 250 to 600 frames."""
    assert 250 <= gop_frames(frame_rate) <= 600


CHROMATICITY = st.integers(0, 50_000).map(lambda units: Fraction(units, 50_000))


@given(
    st.tuples(*[st.tuples(CHROMATICITY, CHROMATICITY)] * 4),
    st.integers(0, 100_000_000),
    st.integers(0, 100_000),
)
def test_mastering_displays_survive_ffmpegs_structure(
    points: tuple[tuple[Fraction, Fraction], ...], peak: int, floor: int
) -> None:
    """A mastering display that is written as FFmpeg's structure is read back with equal values."""
    assume(peak or floor or any(value for point in points for value in point))
    display = MasteringDisplay(*points, Fraction(peak, 10_000), Fraction(floor, 10_000))
    assert mastering_display_from_bytes(mastering_display_to_bytes(display)) == display
