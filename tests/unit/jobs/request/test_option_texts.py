"""Options in programs: values, or text as on the command line."""

from fractions import Fraction

import pytest
from pydantic import BaseModel, ValidationError

from codecfleet.jobs.infer.spec import InferSpec
from codecfleet.jobs.request import options
from codecfleet.jobs.request.options import Option, options_of
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.jobs.stills.spec import StillsSpec

FILES: dict[type[BaseModel], dict[str, object]] = {
    TranscodeSpec: {"source": "in.mkv", "output": "out.mp4"},
    BatchSpec: {"inputs": "in", "output": "out"},
    StillsSpec: {"source": "in.mkv", "output": "out", "count": 2},
    InferSpec: {"source": "in.mkv", "output": "out.npz", "loadable": "net"},
}
TEXTS = {
    options.TARGET: "xpsnr:42:p5",
    options.RATE: "128k",
    options.BYTES: "700M",
    options.TIME: "0:02.5",
    options.SIZE: "720p",
    options.CROP: "16:8:0:4",
    options.PAD: "16:9",
    options.FPS: "30000/1001",
    options.PLACE: "20,30",
    options.TRACK: "eng",
    options.GRID: "10x8",
    options.LOUDNESS: "-16.5",
    options.NUMBERS: "1,2.5,3",
    options.COUNTS: "2",
    options.PAIRS: "tune=film",
    options.CODEC: "x265",
    options.PRESET: "slow",
}
READ_BY_PYDANTIC = (options.NAME, options.NAMES, options.FLAG)
BESIDE: dict[str, dict[str, object]] = {
    **{name: {"audio": "aac"} for name in ("audio_bitrate_bps", "audio_channels", "loudness_lufs")},
    "maxrate_bps": {"bufsize_bits": "8M"},
    "bufsize_bits": {"maxrate_bps": "6M"},
    "every_s": {"count": None},
    "encoder": {"device": "gpu"},
}
"""Options that belong to another."""


def spec_of(**fields: object) -> TranscodeSpec:
    """Return a spec with these fields."""
    return TranscodeSpec.model_validate({"source": "in.mkv", "output": "out.mp4", **fields})


def text_of(option: Option) -> str:
    """Return text for an option: of its kind, its largest number, or its first choice."""
    kind = option.kind
    return TEXTS.get(kind) or (kind.values.split()[-1] if kind.metavar == "N" else kind.metavar.split("|")[0])


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (model, field)
        for model in FILES
        for field, option in options_of(model).items()
        if option.kind not in (options.NAME, options.NAMES, options.FLAG)
    ],
)
def test_every_option_takes_the_command_lines_text(model: type[BaseModel], field: str) -> None:
    """Its value is the command line's, and other text is refused."""
    option = options_of(model)[field]
    text, fields = text_of(option), FILES[model] | BESIDE.get(field, {})
    value = option.kind.read(option.flag, [text] if option.kind.is_list else text)
    assert model.model_validate(fields | {field: text}) == model.model_validate(fields | {field: value})
    with pytest.raises(ValidationError) as refused:
        model.model_validate(fields | {field: "?!"})
    assert [each["loc"][0] for each in refused.value.errors()] == [field]


@pytest.mark.parametrize("field", ["wait_s", "loudness_lufs"])
def test_a_journals_fraction_is_read_whatever_its_size(field: str) -> None:
    """Its JSON has each Fraction exactly, also one that the command line refuses."""
    value = {"wait_s": Fraction(10**9, 3), "loudness_lufs": Fraction(-47, 3)}[field]
    spec = spec_of(audio="aac", **{field: value})
    assert TranscodeSpec.model_validate_json(spec.model_dump_json()) == spec


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
