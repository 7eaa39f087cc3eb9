from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.settings import Codec
from codecfleet.errors import Unsupported
from codecfleet.jobs.carry.containers import container_for

EXTENSIONS = ("mp4", "m4v", "mov", "mkv", "webm", "ts", "h264", "264", "hevc", "265", "ivf", "obu")


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_every_container_takes_its_default_codec(extension: str) -> None:
    """Every container can hold its default codec."""
    container = container_for(f"out.{extension}")

    container.check_video_codec(container.default_codec)
    assert container.name == extension
    assert container.options(Fraction(1, 12_800))["fflags"] == "+bitexact"  # neither a date nor a random id
    with pytest.raises(Unsupported, match=r"webm cannot hold h264 video\. Use --codec av1, vp9"):
        container_for("a.webm").check_video_codec(Codec.H264)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("OUT.MP4", "mp4"),
        ("s3://bucket/film.v2.mkv", "mkv"),
        ("https://host/film.webm?token=a.b", "webm"),
        ("a dir/x.y.ts", "ts"),
        ("/odd?name.mov", "mov"),
    ],
)
def test_the_extension_names_the_container(output: str, name: str) -> None:
    """Paths and addresses are read the same way, in any case."""
    assert container_for(output).name == name


@pytest.mark.parametrize("output", ["film", "film.avi", "s3://bucket.mp4/film", ".mp4"])
def test_an_unknown_container_is_refused_with_the_known_ones(output: str) -> None:
    """The error lists the known containers."""
    with pytest.raises(Unsupported) as refusal:
        container_for(output)

    assert all(f".{extension}" in refusal.value.next_step for extension in EXTENSIONS)


def test_only_mp4_and_mov_can_be_fragmented() -> None:
    """Fragmenting any container but mp4 and mov is refused."""
    assert container_for("a.mp4", fragmented=True).fragmented
    assert container_for("a.mov", fragmented=True).fragmented
    with pytest.raises(Unsupported):
        container_for("a.mkv", fragmented=True)


@given(
    numerator=st.integers(1, 10_000),
    denominator=st.integers(1, 2**31 - 1),
    ticks=st.integers(-(2**40), 2**40),
    name=st.sampled_from(["mp4", "mov", "m4v"]),
)
def test_mp4_times_are_exact(numerator: int, denominator: int, ticks: int, name: str) -> None:
    """Every time of the source is a whole number of mp4 ticks, and the timescale fits its 32-bit field."""
    source = Fraction(numerator, denominator)
    tick = container_for(f"a.{name}").video_tick(source)

    assert (ticks * source / tick).denominator == 1
    assert tick.numerator == 1
    assert 10_000 <= tick.denominator < 2**31


@pytest.mark.parametrize(
    ("name", "tick"), [("mkv", Fraction(1, 1000)), ("ts", Fraction(1, 90_000)), ("ivf", Fraction(1001, 30_000))]
)
def test_other_containers_have_their_own_tick(name: str, tick: Fraction) -> None:
    """Matroska has ticks of a millisecond, transport streams of 1/90,000 s, and IVF those of the source."""
    assert container_for(f"a.{name}").video_tick(Fraction(1001, 30_000)) == tick


def test_a_time_base_must_be_positive() -> None:
    """A time base of zero or less is refused."""
    with pytest.raises(ValueError, match="positive"):
        container_for("a.mp4").video_tick(Fraction(0))
