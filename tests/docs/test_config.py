"""Spec files, the default file that ships, and docs/config.md against the code that reads them."""

import re
from fractions import Fraction
from importlib import resources
from pathlib import Path

import pytest

from codecfleet import Codec, TranscodeSpec, UsageError, load_config
from codecfleet.cli.app import parse
from codecfleet.cli.commands.transcode import Transcode
from codecfleet.cluster.ray.ray_environment import DEATH_KNOBS
from codecfleet.jobs.request.config import OPTIONS
from codecfleet.jobs.request.spec_file import KEYS, load_spec

REPOSITORY = Path(__file__).parents[2]
CONFIG = (REPOSITORY / "docs" / "config.md").read_text(encoding="utf-8")
TEMPLATE = resources.files("codecfleet.configs").joinpath("transcode.toml").read_text(encoding="utf-8")
DEFAULTS = TranscodeSpec(source="in.mkv", output="out.mp4")
_VARIABLE = re.compile(
    r"(?:os\.environ(?:\.get\(|\.setdefault\(|\[)|getenv\()\"(\w+)\"|[\"']((?:CODECFLEET|XDG)_\w+)[\"']"
)
COMMENTED = re.findall(r"^#(\w+ = .*)$", TEMPLATE, re.MULTILINE)


def write(folder: Path, text: str) -> Path:
    """Write a spec file."""
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, **overrides: object) -> TranscodeSpec:
    """Load a spec file for in.mkv and out.mp4."""
    return load_spec(write(folder, text), source="in.mkv", output="out.mp4", **overrides)


def cli_spec(*arguments: str) -> TranscodeSpec:
    """Return the spec that a command line asks for."""
    request = parse(["transcode", "in.mkv", "out.mp4", *arguments])
    assert isinstance(request, Transcode)
    return request.spec


def test_the_keys_are_the_fields() -> None:
    """Every field of the spec has a key, in the same order, except source and output, which come with each job."""
    assert list(KEYS.values()) == list(TranscodeSpec.model_fields)[2:]


def test_every_key_reaches_its_field(tmp_path: Path) -> None:
    """Each key gives its field exactly the value that the command line's option would give."""
    text = """
    codec = "hevc"
    bitrate = "4M"
    maxrate = 6_000_000
    bufsize = "8M"
    preset = 7
    encoder_options = { tune = "film", bf = 3, x265-params = "a=1:b=2" }
    crop = "auto"
    rotate = 90
    flip = "v"
    pad = "1920x1080"
    scale = "720p"
    tonemap = "bt2390"
    pix_fmt = "yuv420p10le"
    denoise = "medium"
    fps = "30000/1001"
    overlay = "logo.png"
    overlay_at = "20,30"
    overlay_opacity = 60
    burn_subtitles = "eng"
    subtitle_font = "font.ttf"
    deinterlace = "auto"
    start = "1:30"
    end = 120.1
    video_track = 1
    audio_tracks = [2, 0]
    audio = "opus"
    subtitles = "none"
    segment_seconds = 2.5
    workers = 3
    wait_seconds = 90
    deadline_seconds = 45
    deadline_factor = 6
    second_runs = 10
    ship = true
    priority = 5
    weight = 2
    device = "cpu"
    encoder = "software"
    keep_evidence = "evidence"
    fragmented = true
    overwrite = true
    if_smaller = true
    strict = true
    force = true
    work = "/work"
    no_journal = true
    restart = true
    keyframe_interval = "2s"
    audio_bitrate = "128k"
    audio_channels = "mono"
    loudness = -16.5
    finish_within_seconds = 900
    """
    line = (
        "--codec hevc --bitrate 4M --maxrate 6M --bufsize 8M --keyframe-interval 2 --preset 7 --encoder-option "
        "tune=film --encoder-option bf=3 --encoder-option x265-params=a=1:b=2 --crop auto --rotate 90 --flip v --pad "
        "1920x1080 --scale 720p --tonemap bt2390 --pix-fmt yuv420p10le --denoise medium --deinterlace auto "
        "--fps 30000/1001 --overlay logo.png --overlay-at 20,30 --overlay-opacity 60 --burn-subtitles ENG "
        "--subtitle-font font.ttf --start 1:30 --end 120.1 "
        "--video-track 1 --audio-track 2 --audio-track 0 --audio opus --subtitles none --segment-seconds 2.5 "
        "--workers 3 --wait-seconds 90 --deadline-seconds 45 --deadline-factor 6 --second-runs 10 --ship --priority 5 "
        "--weight 2 --device cpu --encoder software --fragmented --overwrite --strict --force --keep-evidence "
        "evidence --work /work --no-journal --restart --audio-bitrate 128k --audio-channels mono --if-smaller "
        "--loudness -16.5 --finish-within-seconds 900"
    )
    spec = load(tmp_path, text)
    assert spec == cli_spec(*line.split())
    assert spec.end_s == Fraction(1201, 10)
    changed = {name for name in TranscodeSpec.model_fields if getattr(spec, name) != getattr(DEFAULTS, name)}
    assert changed == set(TranscodeSpec.model_fields) - {"source", "output", "quality", "target_quality", "size_bytes"}


def test_the_shipped_file_is_the_defaults(tmp_path: Path) -> None:
    """configs/transcode.toml, as it stands, changes nothing."""
    assert load(tmp_path, TEMPLATE) == DEFAULTS


@pytest.mark.parametrize("line", COMMENTED)
def test_the_shipped_examples_are_values(line: str, tmp_path: Path) -> None:
    """Each line that is commented out is valid, and would change a default."""
    partners = {"maxrate": 'bufsize = "8M"', "bufsize": 'maxrate = "6M"', "audio_bitrate": 'audio = "aac"'}
    partners["loudness"] = 'audio = "opus"'
    partner = partners.get(line.partition(" = ")[0], "")
    assert load(tmp_path, f"{line}\n{partner}") != DEFAULTS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("bitrat = 1", "Did you mean bitrate?"),
        ("segment-seconds = 2", "Did you mean segment_seconds?"),
        ("audio_track = 2", "Did you mean audio_tracks?"),
        ("zzz = 2", "docs/config.md"),
        ('source = "a"', "with each job"),
        ("[video]\ncodec = 'hevc'", "there is no key video"),
        ("start = 1:30", "not valid TOML"),
        ("start = 00:01:30", "in quotes"),
        ("start = nan", "not a time"),
        ("end = 0", "greater than 0"),
        ("bitrate = true", "not a rate"),
        ("quality = 20.5", "not a whole number"),
        ('strict = "yes"', "true nor false"),
        ("audio_tracks = 1", "[0, 2]"),
        ("audio_tracks = [1, 1]", "given twice"),
        ('encoder_options = "a=b"', "table"),
        ("pix_fmt = 3", "in quotes"),
        ("maxrate = '4M'", "bufsize"),
        ("start = 5\nend = 3", "must come after start"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_what_to_write(text: str, named: str, tmp_path: Path) -> None:
    """Every mistake in a file is one UsageError that names the file, the key and the way out."""
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert named in str(caught.value)
    assert "job.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "binary"])
def test_a_file_that_is_none_is_named(content: bytes | None, tmp_path: Path) -> None:
    """A missing or binary file gives a UsageError that names the file."""
    if content is not None:
        (tmp_path / "job.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"job\.toml"):
        load_spec(tmp_path / "job.toml", source="a", output="b.mp4")


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    """A configuration reads every key that the page's first block sets."""
    example = re.findall(r"```toml\n(.*?)```", CONFIG, re.DOTALL)[0]
    config = load_config({"CODECFLEET_CONFIG": str(write(tmp_path, example))})
    assert len(config.origins) == example.count(" = ")


def test_fields_given_in_python_count_instead(tmp_path: Path) -> None:
    """An override wins; a quality, a bitrate and a target quality also replace one another in the file."""
    assert load(tmp_path, 'codec = "hevc"\nquality = 20', quality=30).quality == 30
    spec = load(tmp_path, 'codec = "hevc"\nquality = 20', bitrate_bps=1_000_000)
    assert (spec.codec, spec.quality, spec.bitrate_bps) == (Codec.HEVC, None, 1_000_000)
    assert load(tmp_path, 'bitrate = "4M"', quality=30).bitrate_bps is None
    assert load(tmp_path, "quality = 30", target_quality="psnr:40").quality is None
    assert load(tmp_path, 'target_quality = "psnr:40"', bitrate_bps=1_000_000).target_quality is None
    with pytest.raises(UsageError, match="preset"):
        load(tmp_path, "", preset=9)


def test_the_command_line_counts_instead_of_the_file(tmp_path: Path) -> None:
    """Options that the command line does not give come from the file that --spec names."""
    path = str(write(tmp_path, 'codec = "hevc"\npreset = 2\naudio = "opus"\nstrict = true\naudio_tracks = [1]'))
    spec = cli_spec("--spec", path, "--preset", "4", "--audio", "copy", "--overwrite")
    assert spec == DEFAULTS.model_copy(
        update={"codec": Codec.HEVC, "strict": True, "overwrite": True, "audio_tracks": (1,)}
    )
    with pytest.raises(UsageError, match="preset"):
        cli_spec("--spec", str(write(tmp_path, "preset = 9")))


def test_the_reference_lists_every_environment_variable() -> None:
    """docs/config.md has a row for each variable that the code reads, except those of the configuration's keys."""
    floors = ("actors", "cluster", "jobs", "codecfleet")
    sources = (path.read_text(encoding="utf-8") for floor in floors for path in (REPOSITORY / floor).rglob("*.py"))
    read = {name for source in sources for names in _VARIABLE.findall(source) for name in names if name}
    read |= set(DEATH_KNOBS)
    table = CONFIG.partition("## Environment variables")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE))
    ours = {name for name, reader in rows.items() if reader in ("codecfleet", "SVT-AV1")}
    of_keys = {f"CODECFLEET_{option.key.upper()}" for option in OPTIONS.values()}
    assert read - of_keys == ours
