"""Which renditions a ladder has, and the request for each."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.settings import Codec
from codecfleet.errors import UsageError
from codecfleet.jobs.ladder.rungs import (
    SourceRate,
    check_grid,
    choose,
    files_of,
    fitted,
    preset_names,
    read_rungs,
    read_sounds,
    rendition_spec,
    without_padding,
)
from codecfleet.jobs.ladder.spec import LadderSpec

LADDER = LadderSpec(source="film.mkv", output="ladder")
SIDES = st.integers(512, 8192)


def write(folder: Path, text: str) -> str:
    """Write a ladder's file."""
    path = folder / "own.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("preset", preset_names())
def test_each_preset_is_a_ladder(preset: str) -> None:
    """All its renditions are valid requests with the same keyframes; only the first carries sound."""
    rungs = read_rungs(preset)
    specs = {
        rung.name: rendition_spec(LADDER, rung, Path("/work"), carries=not number) for number, rung in enumerate(rungs)
    }
    check_grid(LADDER, specs)
    assert [spec.audio for spec in specs.values()] == ["aac", *["none"] * (len(rungs) - 1)]
    assert {spec.output for spec in specs.values()} == {f"/work/{rung.name}.mp4" for rung in rungs}
    assert all(spec.scale is not None and spec.codec is not None for spec in specs.values())


def test_options_of_the_ladder_replace_those_of_the_file(tmp_path: Path) -> None:
    """A given option applies to all renditions; without it the file's value applies."""
    file = write(tmp_path, 'codec = "hevc"\naudio = "opus"\n[[rendition]]\nname = "a"\nquality = 30\n')
    ladder = LadderSpec(source="film.mkv", output="ladder", preset=file, keyframe_interval_s="4", audio="aac")
    (rung,) = read_rungs(file)
    spec = rendition_spec(ladder, rung, Path("/work"), carries=True)
    assert (spec.codec, spec.audio, spec.quality) == (Codec.HEVC, "aac", 30)
    assert spec.keyframe_interval_s == Fraction(4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no renditions"),
        ("rendition = 3", "has no renditions"),
        ("[[rendition]]\nquality = 3", "a rendition needs a name"),
        ('[[rendition]]\nname = "../up"', "a rendition needs a name"),
        ('[[rendition]]\nname = "Master"', "cannot be named Master"),
        ('[[rendition]]\nname = "a-keyframes"', "cannot be named a-keyframes"),
        ('[[rendition]]\nname = "a"\n[[rendition]]\nname = "A"', "two renditions are named a"),
        ('[[rendition]]\nname = "a"\noverlay = "logo.png"', r"own\.toml:3: overlay cannot be set here"),
        ('[[rendition]]\nname = "a"\nstart = "1"', "start cannot be set here"),
        ('work = "s3://bucket/work"\n[[rendition]]\nname = "a"', "work cannot be set here"),
        ('if_smaller = true\n[[rendition]]\nname = "a"', "if_smaller cannot be set here"),
        ('[[rendition]]\nname = "a"\nqualty = 3', "there is no key qualty"),
        ('[[rendition]]\nname = "a"\nquality = 99', "quality"),
        ("\n".join(f'[[rendition]]\nname = "a{n}"' for n in range(33)), "has 33 renditions"),
        ('sound = "aac"\n[[rendition]]\nname = "a"', "sound is not a list of tables"),
        ('[[rendition]]\nname = "a"\n[[sound]]\naudio = "aac"', "a sound needs a name"),
        ('[[rendition]]\nname = "a"\n[[sound]]\nname = "s"\n[[sound]]\nname = "s"', "two groups of sound are named s"),
        ('[[rendition]]\nname = "a"\n[[sound]]\nname = "s"\nsubtitles = "none"', "subtitles cannot be set here"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file."""
    path = write(tmp_path, text)

    def read() -> None:
        read_sounds(path)
        for rung in read_rungs(path):
            rendition_spec(LADDER, rung, Path("/work"), carries=True)

    with pytest.raises(UsageError, match=message) as found:
        read()
    assert "own.toml" in found.value.message


@pytest.mark.parametrize(
    ("key", "step"),
    [
        ("overlay", "above the tables"),
        ("start", "above the tables"),
        ("wait_seconds", "on the command line"),
        ("size", "Leave it out of ladders"),
    ],
)
def test_the_advice_for_a_key_can_be_followed(tmp_path: Path, key: str, step: str) -> None:
    """A key that no ladder has is not on the command line either."""
    path = write(tmp_path, f'[[rendition]]\nname = "a"\n{key} = "10000"')
    with pytest.raises(UsageError, match="cannot be set here") as found:
        read_rungs(path)
    assert step in found.value.next_step


def test_a_file_names_the_files_that_it_needs(tmp_path: Path) -> None:
    """They are the file itself and the overlay: a confined command must be able to read them."""
    path = write(tmp_path, 'overlay = "logo.png"\n[[rendition]]\nname = "a"\n')
    assert files_of(path) == (path, "logo.png")
    assert files_of(path, Path(path).read_text()) == ("logo.png",)
    assert files_of("hls-h264") == ()


def test_an_unknown_preset_is_refused() -> None:
    """The presets are listed."""
    with pytest.raises(UsageError, match="there is no preset nothing") as found:
        read_rungs("nothing")
    assert all(name in found.value.next_step for name in preset_names())


@pytest.mark.parametrize(
    ("intervals", "packaged_s", "message"),
    [
        (("2", "2"), "6", ""),
        (("2", "4"), "4", "are 2 s apart, and those of b 4 s"),
        (("2", "2"), "5", "do not begin at keyframes 2 s apart"),
        (("1/3", "1/3"), "1", ""),
        ((None, "2"), "6", "a has no keyframe interval"),
    ],
)
def test_segments_begin_at_keyframes_of_all_renditions(
    tmp_path: Path, intervals: tuple[str | None, ...], packaged_s: str, message: str
) -> None:
    """Otherwise a player could not change to another rendition at a segment."""
    keys = ["" if each is None else f'keyframe_interval = "{each}"' for each in intervals]
    text = "\n".join(f'[[rendition]]\nname = "{name}"\n{key}' for name, key in zip("ab", keys, strict=True))
    rungs = read_rungs(write(tmp_path, text))
    ladder = LadderSpec(source="film.mkv", output="ladder", packaged_s=packaged_s)

    def check() -> None:
        specs = {rung.name: rendition_spec(ladder, rung, tmp_path, carries=False) for rung in rungs}
        check_grid(ladder, specs)

    if not message:
        check()
        return
    with pytest.raises(UsageError, match=message):
        check()


@pytest.mark.parametrize(
    ("lines", "source", "size"),
    [
        (1080, (1920, 1080), None),
        (720, (1920, 1080), (None, 720)),
        (1080, (1920, 800), None),
        (720, (1920, 800), (None, 534)),
        (720, (1080, 1920), (None, 1280)),
        (720, (1440, 1080), (None, 720)),
        (1080, (1280, 720), (None, 1080)),
    ],
)
def test_a_height_means_a_picture_of_16_9(lines: int, source: tuple[int, int], size: tuple[None, int] | None) -> None:
    """Wider pictures get its width; for upright pictures, height and width change places."""
    assert fitted((None, lines), source) == size


@given(lines=st.integers(64, 8192), source=st.tuples(SIDES, SIDES))
def test_a_fitted_picture_lies_in_its_box(lines: int, source: tuple[int, int]) -> None:
    """Neither side is larger than that side of the 16:9 box, apart from rounding to even sizes."""
    size = fitted((None, lines), source)
    width, height = source if size is None else (Fraction(size[1] * source[0], source[1]), size[1])
    short, long = sorted((width, Fraction(height)))
    assert short <= lines + 2
    assert long <= Fraction(16 * lines, 9) + 2 * (1 + Fraction(max(source), min(source)))


@pytest.mark.parametrize(
    ("source", "made", "left_out"),
    [
        ((1920, 1080), {"1080p": None, "720p": (None, 720), "480p": (None, 480), "360p": (None, 360)}, ()),
        ((1280, 720), {"720p": None, "480p": (None, 480), "360p": (None, 360)}, ("1080p",)),
        ((320, 240), {"360p": None}, ("1080p", "720p", "480p")),
        (
            (4096, 1716),
            {name: (None, lines) for name, lines in (("1080p", 804), ("720p", 536), ("480p", 358), ("360p", 268))},
            (),
        ),
    ],
)
def test_no_rendition_is_larger_than_its_source(
    source: tuple[int, int], made: dict[str, tuple[None, int] | None], left_out: tuple[str, ...]
) -> None:
    """Larger ones are left out, with the reason; if all are larger, the smallest has the source's size."""
    rungs = read_rungs("hls-h264")
    specs = [rendition_spec(LADDER, rung, Path("/work"), carries=False) for rung in rungs]
    chosen, left = choose(rungs, specs, source)
    assert {rung.name: size for rung, size in chosen} == made
    assert tuple(each.name for each in left) == left_out
    assert all(f"{source[0]}x{source[1]}" in each.reason for each in left)


@pytest.mark.parametrize(
    ("codec", "bps", "left_out"),
    [
        ("h264", 7_000_000, ()),
        ("h264", 4_000_000, ("high",)),
        ("h264", 1_000_000, ("high", "middle", "next")),
        ("mpeg2video", 4_000_000, ("high",)),
        ("hevc", 1_000_000, ()),  # H.264 needs more bits
    ],
)
def test_no_bitrate_is_higher_than_the_source_has(
    tmp_path: Path, codec: str, bps: int, left_out: tuple[str, ...]
) -> None:
    """But no size is lost: the lowest bitrate of each size stays, or the rendition that asks for a quality."""
    rungs = {
        "high": ("1080p", 'bitrate = "6M"'),
        "middle": ("1080p", 'bitrate = "3M"'),
        "low": ("1080p", 'bitrate = "2M"'),
        "next": ("720p", 'bitrate = "2M"'),
        "good": ("720p", "quality = 20"),
        "small": ("360p", 'bitrate = "8M"'),
    }
    tables = "".join(
        f'[[rendition]]\nname = "{name}"\nscale = "{scale}"\n{rate}\n' for name, (scale, rate) in rungs.items()
    )
    found = read_rungs(write(tmp_path, f"keyframe_interval = 2\n{tables}"))
    specs = {rung.name: rendition_spec(LADDER, rung, Path("/work"), carries=False) for rung in found}
    chosen, _ = choose(found, list(specs.values()), (1920, 1080))
    made, left = without_padding(chosen, specs, SourceRate(codec, bps))
    assert tuple(each.name for each in left) == left_out
    assert [rung.name for rung, _ in made] == [name for name in rungs if name not in left_out]
    assert all(f"{bps // 1000} kbit/s" in each.reason for each in left)
