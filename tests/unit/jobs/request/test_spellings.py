"""Other programs' names for options: accepted, or answered with the right name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.cli.app import parse
from codecfleet.errors import UsageError
from codecfleet.jobs.batch.listed.manifest import ManifestFormat, read_manifest
from codecfleet.jobs.frames.stream import frames
from codecfleet.jobs.one_job import transcode
from codecfleet.jobs.request.options import options_of
from codecfleet.jobs.request.presets import load_preset
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.request.spec_file import SpecFile, load_spec
from codecfleet.jobs.request.spellings import (
    FFMPEG,
    GUESSED,
    MISSING,
    PRESET_NAMES,
    option_for,
    parse_codec,
    parse_preset,
)

FLAGS = {flag for option in options_of(TranscodeSpec).values() for flag in (option.flag, *option.aliases)}
OTHER_FLAGS = {"--quiet", "--json"}  # options that only the command line has
JOB = partial(transcode, "a.mkv", "b.mp4")


@pytest.mark.parametrize(
    ("codec", "names"),
    [
        (Codec.H264, "h264 avc avc1 x264 libx264 H.264 H264"),
        (Codec.HEVC, "hevc h265 x265 libx265 hvc1 HEVC"),
        (Codec.AV1, "av1 libsvtav1 svtav1 av01"),
        (Codec.VP9, "vp9 libvpx-vp9 vp09"),
    ],
)
def test_a_codec_has_the_names_of_its_format_and_its_encoder(codec: Codec, names: str) -> None:
    """Every usual name of a format or of its encoder is the codec, in upper and lower case."""
    assert {parse_codec("--codec", name) for name in names.split()} == {codec.value}
    assert PROFILES[codec].implementation in names


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        *((parse_codec, name, "Choose h264, hevc, av1 or vp9") for name in ("libaom-av1", "vp8", "h264_vaapi", "")),
        (parse_codec, "hevc_nvenc", r"Did you mean --codec hevc --encoder nvenc\?"),
        (parse_preset, "faster", r"Did you mean veryfast \(2\) or fast \(3\)\?"),
        (parse_preset, "placebo", r"Did you mean veryslow \(7\)\?"),
        (parse_preset, "quick", "1 to 7, or ultrafast, .*veryslow"),
        (parse_preset, "8", "1 to 7"),
    ],
)
def test_what_is_neither_codec_nor_preset_is_answered_with_the_nearest(
    parse: Callable[[str, str], object], text: str, said: str
) -> None:
    """An unknown codec, an encoder's name, or another preset of x264 is answered with the nearest name."""
    with pytest.raises(UsageError, match=said):
        parse("--option", text)


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
def test_a_presets_name_is_what_x264_and_x265_call_it(codec: Codec) -> None:
    """The names of presets are those for which x264 and x265 run the same preset."""
    assert len(PRESET_NAMES) == len(PROFILES[codec].presets)
    for name in PRESET_NAMES:
        assert PROFILES[codec].presets[parse_preset("--preset", name) - 1] == (("preset", name),)


def test_ffmpegs_options_lead_to_options_that_exist() -> None:
    """Every flag advised instead of one of FFmpeg's exists in the command."""
    named = {word.rstrip(",") for ours in FFMPEG.values() for word in ours.split() if word.startswith("--")}
    assert named <= FLAGS | OTHER_FLAGS


@pytest.mark.parametrize(
    ("line", "theirs", "ours"),
    [
        ("in.mkv out.mp4 -c:v libx265 -crf 20", "-c:v", "--codec"),
        ("in.mkv out.mp4 -b:v:0 4M", "-b:v:0", "--bitrate"),
        ("in.mkv out.mp4 -ss 90", "-ss", "--start"),
        ("in.mkv out.mp4 -r 25", "-r", "--fps"),
        ("in.mkv out.mp4 --subtitle-burned 1", "--subtitle-burned", "--burn-subtitles"),
        ("in.mkv out.mp4 --codec hevc", "", ""),
        ("in.mkv out.mp4 -nonsense", "", ""),
    ],
)
def test_the_first_of_ffmpegs_options_is_answered(line: str, theirs: str, ours: str) -> None:
    """The first of FFmpeg's options is answered with the command's option; other lines get no advice."""
    assert option_for(line.split(), FLAGS) == (theirs, ours)
    assert option_for(line.split(), {"--json"}) == ("", "")


def test_paths_are_taken_wherever_a_place_is_named() -> None:
    """A ``pathlib.Path`` is accepted like text in every field that names a file or folder."""
    places = {"source": "a.mkv", "output": "b.mp4", "work": "w", "keep_evidence": "e"}
    assert TranscodeSpec(**{name: Path(place) for name, place in places.items()}) == TranscodeSpec(**places)


def test_an_option_s_other_names_are_taken_wherever_it_is() -> None:
    """``crf`` is accepted for ``quality`` in a call, on the command line, in a spec file and in a list."""
    names = {"source": "a.mkv", "output": "b.mp4"}
    assert TranscodeSpec(**names, crf=20) == TranscodeSpec(**names, quality=20)
    assert SpecFile.read("s.toml", "crf = 20").fields == SpecFile.read("s.toml", "quality = 20").fields
    assert load_preset("web-h264", **names, crf=20) == load_preset("web-h264", **names, quality=20)
    lists = {ManifestFormat.CSV: ("source,{}", "a.mkv,20"), ManifestFormat.JSONL: ('{{"source": "a.mkv", "{}": 20}}',)}
    for form, lines in lists.items():
        crf, quality = ([*read_manifest([each.format(key) for each in lines], form, "-")] for key in ("crf", "quality"))
        assert [row.overrides for row in crf] == [row.overrides for row in quality]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("--threads", "Write --workers instead."),
        ("--tune", "Write --encoder-option NAME=VALUE instead."),
        ("--target-vmaf", "--target-quality vmaf:94"),
        ("--metadata", "Tags are copied unchanged"),
        ("--resolution", "Write --scale instead."),
        ("--qualty", "Did you mean --quality?"),
        ("--crff", "Did you mean --crf?"),
        ("--vf", "the filter's own option, such as --scale or --fps"),
        ("--xyzzy", "See codecfleet transcode --help."),
        ("--lossless", "See codecfleet transcode --help."),
        ("--map", "--video-track and --audio-track"),
    ],
)
def test_a_guess_is_answered_with_what_is_meant_or_with_nothing(name: str, said: str) -> None:
    """A guess is never answered with an option that only shares some letters."""
    with pytest.raises(UsageError) as refused:
        parse(["transcode", "a.mkv", "b.mp4", name, "4"])
    assert refused.value.message == f"no such option: {name}"
    assert said in refused.value.next_step


@pytest.mark.parametrize("name", sorted({*GUESSED, *MISSING}))
def test_no_guess_is_an_option(name: str) -> None:
    """Names with advice are no options of the command, and the advised options exist."""
    assert name not in FLAGS | OTHER_FLAGS
    advised = {word.rstrip(",;:.") for word in (GUESSED.get(name) or MISSING[name]).split() if word.startswith("--")}
    assert advised <= FLAGS


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        (JOB, {"bitrate": "4M"}, "there is no option bitrate: did you mean bitrate_bps?"),
        (JOB, {"crf": 20, "quality": 20}, "crf and quality are one option: leave one of them out"),
        (JOB, {"vcodec": "h264"}, "there is no option vcodec: did you mean codec?"),
        (JOB, {"segment_seconds": 5}, "there is no option segment_seconds: did you mean segment_s?"),
        (JOB, {"start": 5}, "there is no option start: did you mean start_s?"),
        (JOB, {"qualty": 5}, "there is no option qualty: did you mean quality?"),
        (JOB, {"xyzzy": 5}, "there is no option xyzzy. docs/config.md"),
        (JOB, {"scale": "big"}, "scale: 'big' is not a picture size. Write WIDTHxHEIGHT"),
        (JOB, {"bitrate_bps": "4 Mbit"}, "bitrate_bps: '4 Mbit' is not a rate in bits. Write 4M"),
        *((partial(frames, "a.mkv"), {"size": size}, "size: ") for size in ((None, 90), "90p", (1, 2, 3), 90)),
        (partial(SpecFile.read, "s.toml"), {"text": "crf = 20\nquality = 20"}, "s.toml: crf and quality are one"),
    ],
)
def test_a_call_that_is_wrong_says_what_to_write(
    call: Callable[..., object], given: dict[str, object], said: str
) -> None:
    """A wrong name or value of an option in a call is answered with the right one."""
    with pytest.raises(UsageError) as caught:
        call(**given)
    assert str(caught.value).startswith(said)


def test_a_spec_file_takes_the_same_spellings(tmp_path: Path) -> None:
    """A spec file may say h265 and slow; a field's name is answered with the key."""
    file = tmp_path / "job.toml"
    file.write_text('codec = "h265"\npreset = "slow"\n')
    spec = load_spec(file, source=Path("a.mkv"), output=Path("b.mp4"))
    assert (spec.codec, spec.preset) == (Codec.HEVC, 5)
    file.write_text("start_s = 20\n")
    with pytest.raises(UsageError, match=r"there is no key start_s\. Did you mean start\?"):
        load_spec(file, source="a.mkv", output="b.mp4")
