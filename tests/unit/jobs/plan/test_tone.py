"""Whether plans tone map a track, and how."""

from dataclasses import replace
from fractions import Fraction

import pytest

from codecfleet.actors.decode.describe import StreamExtras
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.media.values import Colour, ContentLight, HdrStatic, MasteringDisplay, VideoFormat
from codecfleet.actors.segment.filtering import FilterSettings
from codecfleet.actors.segment.tone import Operator, ToneMap, Transfer
from codecfleet.errors import Unsupported
from codecfleet.jobs.plan.picture import filter_choices, settle_picture
from codecfleet.jobs.plan.steps import settle_framing
from codecfleet.jobs.plan.tone import settle_tone
from codecfleet.jobs.request.spec import TranscodeSpec

POINT = (Fraction(1, 3), Fraction(1, 3))
DISPLAY = MasteringDisplay(POINT, POINT, POINT, POINT, Fraction(4000), Fraction(1, 100))
HDR10 = VideoFormat(
    1920,
    1080,
    "yuv420p10le",
    Fraction(24),
    colour=Colour(range=1, primaries=9, transfer=16, matrix=9, chroma_location=3),
    hdr=HdrStatic(DISPLAY, ContentLight(1100, 300)),
)
SPEC = TranscodeSpec(source="in.mkv", output="out.mp4", tonemap="bt2390")


@pytest.mark.parametrize(
    ("source", "transfer", "peak_cd"),
    [
        (HDR10, Transfer.PQ, 1100),
        (replace(HDR10, hdr=HdrStatic(DISPLAY, ContentLight(0, 300))), Transfer.PQ, 4000),
        (replace(HDR10, hdr=HdrStatic(DISPLAY)), Transfer.PQ, 4000),
        (replace(HDR10, hdr=HdrStatic()), Transfer.PQ, 1000),
        (replace(HDR10, hdr=HdrStatic(light=ContentLight(90, 0))), Transfer.PQ, 203),
        (replace(HDR10, hdr=HdrStatic(light=ContentLight(60_000, 0))), Transfer.PQ, 10_000),
        (replace(HDR10, colour=replace(HDR10.colour, transfer=18)), Transfer.HLG, 1000),
    ],
)
def test_the_peak_is_the_contents_then_the_displays(source: VideoFormat, transfer: Transfer, peak_cd: int) -> None:
    """The peak is MaxCLL, otherwise the mastering display's, otherwise 1000 cd/m², within SDR white and PQ's end.

    HLG is relative to a display. Without a request, HDR stays HDR.
    """
    assert settle_tone(source, SPEC) == ToneMap(Operator.BT2390, transfer, Fraction(peak_cd))
    assert settle_tone(source, TranscodeSpec(source="in.mkv", output="out.mp4")) is None


def test_the_output_says_that_it_is_sdr() -> None:
    """The output states BT.709, the source's range and chroma, no HDR values, and the choice."""
    settled = settle_picture(HDR10, SPEC, Codec.HEVC, settle_framing(HDR10, StreamExtras(), SPEC))
    assert settled.format.colour == Colour(range=1, primaries=1, transfer=1, matrix=1, chroma_location=3)
    assert settled.format.hdr == HdrStatic()
    assert (settled.steps, settled.changes) == (None, ())
    filters = FilterSettings(settled.format, tone=settled.tone)
    assert [choice.code for choice in filter_choices(filters)] == ["tone-mapping"]


@pytest.mark.parametrize("transfer", [1, 2, 14])
def test_sdr_stays_what_it_is(transfer: int) -> None:
    """Pictures that are not HDR stay as they are, with a warning, so one preset fits a whole folder."""
    sdr = replace(HDR10, colour=replace(HDR10.colour, transfer=transfer))
    settled = settle_picture(sdr, SPEC, Codec.HEVC, settle_framing(sdr, StreamExtras(), SPEC))
    assert settled.tone is None
    assert settled.format == sdr
    assert [change.code for change in settled.changes] == ["not-hdr"]


@pytest.mark.parametrize(
    "source",
    [
        replace(HDR10, colour=replace(HDR10.colour, primaries=12)),
        replace(HDR10, colour=replace(HDR10.colour, matrix=14)),
        replace(HDR10, pix_fmt="gbrp10le"),
    ],
    ids=["P3", "ICtCp", "RGB"],
)
def test_other_colours_than_bt_2020_are_refused(source: VideoFormat) -> None:
    """HDR in other colours than BT.2020 is refused, because the formula would differ."""
    with pytest.raises(Unsupported, match=r"BT\.2020"):
        settle_tone(source, SPEC)
