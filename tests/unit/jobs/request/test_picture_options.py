"""The options for pictures in programs: values, or text as on the command line."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from codecfleet.jobs.request.spec import TranscodeSpec


def spec_of(**fields: object) -> TranscodeSpec:
    """Return a spec with these fields."""
    return TranscodeSpec.model_validate({"source": "in.mkv", "output": "out.mp4", **fields})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ({"crop": "1920:800:0:140"}, {"crop": (1920, 800, 0, 140)}),
        ({"crop": "auto", "pad": "1920x1080"}, {"crop": "auto", "pad": (1920, 1080)}),
        ({"pad": "16:9", "rotate": 90, "flip": "h"}, {"pad": Fraction(16, 9), "rotate": "90", "flip": "h"}),
        ({"burn_subtitles": "2"}, {"burn_subtitles": 2}),
        ({"burn_subtitles": "ENG"}, {"burn_subtitles": "eng"}),
        ({"scale": "720p", "codec": "h265", "preset": "slow"}, {"scale": (None, 720), "codec": "hevc", "preset": 5}),
        ({"maxrate_bps": "6M", "bufsize_bits": "8M"}, {"maxrate_bps": 6_000_000, "bufsize_bits": 8_000_000}),
        ({"start_s": "1:30", "end_s": "181/2"}, {"start_s": Fraction(90), "end_s": Fraction(181, 2)}),
    ],
)
def test_text_means_the_same_as_on_the_command_line(text: dict[str, object], meant: dict[str, object]) -> None:
    """Text means the same as on the command line, and survives the JSON of a journal."""
    spec = spec_of(**text)
    assert spec == spec_of(**meant)
    assert TranscodeSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "fields",
    [
        *({"crop": crop} for crop in ((0, 8, 0, 0), "16:9")),
        *({"pad": pad} for pad in (Fraction(-1), "x")),
        *({"rotate": 45}, {"flip": "x"}, {"burn_subtitles": -1}, {"bitrate": 4}),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    """Invalid values are refused like invalid text."""
    with pytest.raises(ValidationError):
        spec_of(**fields)
