"""What the headers of containers can state about pictures, tried with FFmpeg's muxers and demuxers."""

from dataclasses import replace
from fractions import Fraction
from math import cos, sin
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.describe import StreamExtras
from codecfleet.actors.media.values import ContentLight, HdrStatic, MasteringDisplay, VideoFormat
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.carry.header_trial import Header, settle_header, settle_orientation

ONE = 1 << 16
PICTURE = VideoFormat(width=160, height=96, pix_fmt="yuv420p", frame_rate=Fraction(25))
QUARTER_STRETCHED = (0, 2 * ONE, 0, -ONE, 0, 0, 0, 0, 1 << 30)
SIDE_BY_SIDE = Struct("=4iI4i").pack(1, 0, 0, 0, 0, 0, 1, 0, 1)
CUBE = Struct("=i3i5I").pack(1, 0, 0, 0, 0, 0, 0, 0, 0)


def matrix(a: float, b: float, c: float, d: float) -> tuple[int, ...]:
    """Return a display matrix in FFmpeg's fixed-point format."""
    return (round(a * ONE), round(b * ONE), 0, round(c * ONE), round(d * ONE), 0, 0, 0, 1 << 30)


def header(output: str, **extras: object) -> Header:
    """Return the header trial's result for an output with these extras."""
    return settle_header(PICTURE, StreamExtras(**extras), container_for(output))  # type: ignore[arg-type]


def lost(output: str, **extras: object) -> list[tuple[str, tuple[str, ...]]]:
    """Return the codes and checks of the losses in a container."""
    return [(loss.code, loss.checks) for loss in header(output, **extras).losses]


@pytest.mark.parametrize("output", ["a.mp4", "a.mov", "a.mkv", "a.webm"])
@pytest.mark.parametrize("turn", [(0, 1, -1, 0), (-1, 0, 0, 1), (0, 1, 1, 0), (0.866, 0.5, -0.5, 0.866)])
def test_turns_and_flips_are_kept(output: str, turn: tuple[float, float, float, float]) -> None:
    """A rotation by any angle is kept in every container whose header can state one."""
    assert not lost(output, display_matrix=matrix(*turn))


def test_a_matrix_that_stretches_stays_whole_in_mp4_and_only_turns_elsewhere() -> None:
    """A matrix that stretches stays whole in mp4; elsewhere the shape is stated and the matrix only turns."""
    source = replace(PICTURE, sample_aspect_ratio=Fraction(1, 2))
    extras = StreamExtras(display_matrix=QUARTER_STRETCHED)

    picture, whole = settle_orientation(source, source, extras, container_for("a.mp4"))
    assert (picture.sample_aspect_ratio, whole.display_matrix) == (1, QUARTER_STRETCHED)
    assert not settle_header(picture, whole, container_for("a.mp4")).losses
    picture, turned = settle_orientation(source, source, extras, container_for("a.mkv"))
    assert (picture.sample_aspect_ratio, turned.display_matrix) == (Fraction(1, 2), matrix(0, 1, -1, 0))
    assert not settle_header(picture, turned, container_for("a.mkv")).losses


def test_a_shape_that_contradicts_its_matrix_is_stated() -> None:
    """A shape is stated in mp4 only if it contradicts the matrix."""
    extras = StreamExtras(display_matrix=QUARTER_STRETCHED)
    picture, turned = settle_orientation(PICTURE, PICTURE, extras, container_for("a.mp4"))
    assert (picture.sample_aspect_ratio, turned.display_matrix) == (1, matrix(0, 1, -1, 0))


def test_a_skew_matrix_is_named_as_lost_where_only_turns_are_stated() -> None:
    """A skew is named as lost in Matroska, which states only angles."""
    skew = matrix(1, 0.5, 0, 1)
    extras = settle_orientation(PICTURE, PICTURE, StreamExtras(display_matrix=skew), container_for("a.mkv"))[1]

    assert lost("a.mkv", display_matrix=extras.display_matrix) == [("rotation-dropped", ("metadata.rotation",))]
    assert not lost("a.mp4", display_matrix=skew)


@given(angle=st.floats(0, 6.28), across=st.floats(0.25, 4), down=st.floats(0.25, 4), flips=st.booleans())
def test_what_is_left_of_a_stretch_is_a_turn_that_matroska_states(
    angle: float, across: float, down: float, *, flips: bool
) -> None:
    """Without its stretch, a matrix of any angle and scales is a rotation that Matroska can state."""
    flip = -1 if flips else 1
    stretched = matrix(across * cos(angle), down * sin(angle), -flip * across * sin(angle), flip * down * cos(angle))
    extras = settle_orientation(PICTURE, PICTURE, StreamExtras(display_matrix=stretched), container_for("a.mkv"))[1]
    if extras.display_matrix != stretched:
        assert not lost("a.mkv", display_matrix=extras.display_matrix)


def test_what_a_container_cannot_state_is_named() -> None:
    """Transport streams state no rotation, projection or views, QuickTime no cube map, and mp4 other views."""
    everything = {"display_matrix": matrix(0, 1, -1, 0), "spherical": CUBE, "stereo3d": SIDE_BY_SIDE}
    dropped = [
        ("rotation-dropped", ("metadata.rotation",)),
        ("spherical-dropped", ("metadata.spherical",)),
        ("stereo3d-dropped", ("metadata.stereo3d",)),
    ]
    assert lost("a.ts", **everything) == dropped
    assert lost("a.mov", spherical=CUBE) == dropped[1:2]
    assert lost("a.mp4", stereo3d=SIDE_BY_SIDE) == [("stereo3d-changed", ("metadata.stereo3d",))]
    assert not lost("a.mkv", stereo3d=SIDE_BY_SIDE)


def test_what_a_muxer_refuses_is_not_written() -> None:
    """A checkerboard of two views, which WebM refuses, is left out instead of ending the job."""
    checkerboard = b"\x03" + SIDE_BY_SIDE[1:]
    found = header("a.webm", stereo3d=checkerboard)

    assert not found.side
    assert [loss.code for loss in found.losses] == ["stereo3d-dropped"]


@pytest.mark.parametrize("output", ["a.mp4", "a.mov", "a.mkv"])
def test_half_a_mastering_display_is_kept(output: str) -> None:
    """A mastering display with only colours or only luminance is kept, as ST 2086 allows."""
    point, nowhere = (Fraction(1, 4), Fraction(1, 2)), (Fraction(0), Fraction(0))
    for at, least, most in ((point, 0, 0), (nowhere, 1, 1000)):
        luminance = {"min_luminance": Fraction(least), "max_luminance": Fraction(most)}
        mastering = MasteringDisplay(red=at, green=at, blue=at, white=at, **luminance)
        picture = replace(PICTURE, hdr=HdrStatic(mastering=mastering))
        assert not settle_header(picture, StreamExtras(), container_for(output)).losses


def test_a_light_level_of_which_one_half_is_unknown_is_named_where_it_is_not_read() -> None:
    """A light level with one unknown value is named as lost in Matroska, from which FFmpeg would not read it."""
    picture = replace(PICTURE, hdr=HdrStatic(light=ContentLight(max_cll=1000, max_fall=0)))
    found = {name: settle_header(picture, StreamExtras(), container_for(name)).losses for name in ("a.mp4", "a.mkv")}
    assert [loss.code for loss in found["a.mkv"]] == ["light-level-dropped"]
    assert not found["a.mp4"]
