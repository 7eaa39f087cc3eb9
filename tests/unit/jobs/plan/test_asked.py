"""Warnings about requests that are seldom meant."""

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


@pytest.mark.parametrize(
    ("transfer", "source", "output", "codec", "found"),
    [
        (PQ, "yuv420p10le", "yuv420p", Codec.HEVC, ["hdr-in-8-bits"]),
        (HLG, "yuv420p10le", "yuv420p", Codec.VP9, ["hdr-in-8-bits"]),
        (PQ, "yuv420p10le", "yuv420p10le", Codec.HEVC, []),
        (SDR, "yuv420p10le", "yuv420p", Codec.HEVC, []),
        (PQ, "yuv420p", "yuv420p", Codec.HEVC, []),
    ],
)
def test_hdr_that_loses_bits_down_to_8_is_warned_of(
    transfer: int, source: str, output: str, codec: Codec, found: list[str]
) -> None:
    """HDR (PQ or HLG) that is reduced to 8 bits is warned of; HDR that keeps its depth, and SDR, are not."""
    assert codes(transfer, source, output, codec) == found


def test_a_bitrate_in_the_wrong_unit_is_warned_of() -> None:
    """A bitrate or maximum below 50 kbit/s is warned of, with what was probably meant."""
    assert codes(SDR, "yuv420p", "yuv420p", bitrate_bps=4000) == ["low-bitrate"]
    assert codes(SDR, "yuv420p", "yuv420p", maxrate_bps=6000, bufsize_bits=8000) == ["low-bitrate"]
    assert codes(SDR, "yuv420p", "yuv420p", bitrate_bps=LEAST_USUAL_BPS) == []
