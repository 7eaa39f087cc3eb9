"""Warnings about requests that are rarely meant."""

from dataclasses import replace
from fractions import Fraction

import pytest

from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.jobs.plan.asked import LEAST_USUAL_BPS, advice
from codecfleet.jobs.request.spec import TranscodeSpec

PQ, HLG, SDR = 16, 18, 1


def codes(transfer: int, source: str, output: str, codec: Codec = Codec.HEVC, **options: object) -> list[str]:
    """Return the codes of the warnings for pictures of these formats."""
    picture = VideoFormat(64, 36, source, Fraction(25), colour=Colour(transfer=transfer))
    spec = TranscodeSpec(source="a.mkv", output="b.mp4", **options)
    return [each.code for each in advice(picture, replace(picture, pix_fmt=output), codec, spec)]


@pytest.mark.parametrize("transfer", [PQ, HLG])
def test_hdr_in_8_bits_is_warned_of(transfer: int) -> None:
    """PQ and HLG that lose bits down to 8 are warned of, for codecs with and without a deeper format."""
    assert codes(transfer, "yuv420p10le", "yuv420p") == ["hdr-in-8-bits"]
    assert codes(transfer, "yuv420p10le", "yuv420p", Codec.VP9) == ["hdr-in-8-bits"]


@pytest.mark.parametrize(
    ("transfer", "source", "output"),
    [(PQ, "yuv420p10le", "yuv420p10le"), (SDR, "yuv420p10le", "yuv420p"), (PQ, "yuv420p", "yuv420p")],
)
def test_other_depths_are_not(transfer: int, source: str, output: str) -> None:
    """HDR that keeps its depth, SDR, and a source that has 8 bits itself bring no warning."""
    assert codes(transfer, source, output) == []


def test_a_bitrate_in_the_wrong_unit_is_warned_of() -> None:
    """A bitrate or a maximum below 50 kbit/s is warned of, with what was probably meant; 50k is not."""
    assert codes(SDR, "yuv420p", "yuv420p", bitrate_bps=4000) == ["low-bitrate"]
    assert codes(SDR, "yuv420p", "yuv420p", maxrate_bps=6000, bufsize_bits=8000) == ["low-bitrate"]
    assert codes(SDR, "yuv420p", "yuv420p", bitrate_bps=LEAST_USUAL_BPS) == []
