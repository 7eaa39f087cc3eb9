"""What becomes of pictures, as programs ask for it: values, or text as on the command line."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from codecfleet.jobs.request.spec import TranscodeSpec


def spec_of(**fields: object) -> TranscodeSpec:
    """Return a spec with these fields."""
    return TranscodeSpec.model_validate({"source": "in.mkv", "output": "out.mp4", **fields})


def test_text_is_read_as_on_the_command_line() -> None:
    """A crop, a border and a turn mean the same as text and as values."""
    text = spec_of(crop="1920:800:0:140", pad="16:9", rotate=90, flip="h")
    assert text == spec_of(crop=(1920, 800, 0, 140), pad=Fraction(16, 9), rotate="90", flip="h")
    assert (spec_of(burn_subtitles="2"), spec_of(burn_subtitles="ENG")) == (
        spec_of(burn_subtitles=2),
        spec_of(burn_subtitles="eng"),
    )
    assert spec_of(crop="auto", pad="1920x1080") == spec_of(crop="auto", pad=(1920, 1080))


def test_a_request_survives_being_written_down() -> None:
    """A journal keeps a request as JSON: it comes back equal."""
    for fields in (
        {"crop": (16, 8, 0, 2), "pad": Fraction(16, 9)},
        {"crop": "auto", "pad": (64, 48), "rotate": "0"},
        {"burn_subtitles": "eng"},
    ):
        spec = spec_of(**fields)
        assert TranscodeSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    "fields",
    [
        {"crop": (0, 8, 0, 0)},
        {"crop": "16:9"},
        {"pad": Fraction(-1)},
        {"pad": "x"},
        {"rotate": 45},
        {"flip": "x"},
        {"burn_subtitles": -1},
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    """Values as well as text."""
    with pytest.raises(ValidationError):
        spec_of(**fields)
