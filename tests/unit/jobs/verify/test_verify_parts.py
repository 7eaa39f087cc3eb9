"""The parts of the proof that need no file: times, verdicts, declared losses, subtitles, formats."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from codecfleet.jobs.report.report import Warning_
from codecfleet.jobs.verify.audio import _check_rate, begin_s, find_kept, find_run
from codecfleet.jobs.verify.container_checks import Containers, ExpectedTimes, check_containers
from codecfleet.jobs.verify.hearing import Heard
from codecfleet.jobs.verify.job import last_shown_s
from codecfleet.jobs.verify.metadata import _turn
from codecfleet.jobs.verify.picture_life import StatedPictures
from codecfleet.jobs.verify.pictures import PictureComparison, comparable_format, conformed
from codecfleet.jobs.verify.reference.reference_decode import Timeline
from codecfleet.jobs.verify.sound_tracks import SoundTrack
from codecfleet.jobs.verify.stated.facts import Spread, StatedFile, StatedKind, StatedTrack
from codecfleet.jobs.verify.subtitles import plain_text
from codecfleet.jobs.verify.verdict import Check, PictureNumbers, Verdict, check, with_declared
from codecfleet.jobs.verify.video import OutputPacket, OutputScan, check_stream, check_times, scan_output
from codecfleet.testing.clips import Clip, constant_times, make_clip

MILLISECOND = Fraction(1, 1000)
NTSC = [1001 * n for n in range(100)]
FINE = {"muxer": "mov,mp4", "time_base": Fraction(1, 16000)}


def scan(*packets: OutputPacket, muxer: str = "matroska,webm", time_base: Fraction = MILLISECOND) -> OutputScan:
    """Return the scan of an output with these packets."""
    return OutputScan(muxer=muxer, time_base=time_base, packets=packets)


def failed(checks: list[Check]) -> list[str]:
    """Return the names of the checks that failed."""
    return [one.name for one in checks if one.failed]


@pytest.mark.parametrize(
    ("expected", "tick_s", "found", "output", "failing"),
    [
        # Milliseconds express the times of 30000/1001 frames per second within a tick.
        (NTSC, Fraction(1, 30000), [round(Fraction(ticks, 30)) for ticks in NTSC], {}, []),
        # If every tick of the source is a whole number of the output's ticks, nothing may be rounded.
        ([0, 40, 80], MILLISECOND, [640, 1280, 1920], FINE, []),
        ([0, 40, 80], MILLISECOND, [640, 1281, 1920], FINE, ["times.equal"]),
        ([0, 40, 80], MILLISECOND, [0, 40, 40], {}, ["times.equal", "times.increasing"]),
        ([0, 40, 80], MILLISECOND, [0, None, 80], {}, ["times.equal", "times.increasing"]),
        ([0, 40, 80], MILLISECOND, [0, 40], {}, ["times.equal"]),
        ([0, 40], MILLISECOND, [None, None], {"muxer": "h264"}, []),
    ],
)
def test_each_time_is_the_sources(
    expected: list[int], tick_s: Fraction, found: list[int | None], output: dict[str, Any], failing: list[str]
) -> None:
    """Times are rounded only if the output's ticks are coarser; raw bitstreams have none."""
    checks = check_times(expected, tick_s, found, scan(**output))
    assert failed(checks) == failing
    assert ("h264" in output.values()) == ([one.passed for one in checks] == [None, None])


def test_a_reference_of_ten_bits_is_the_same_each_time() -> None:
    """With sides that the scaler's threads cannot divide into blocks, black stays black every time."""
    black = VideoFrame(322, 242, "yuv444p10le")
    for plane, level in zip(black.planes, (64, 512, 512), strict=True):
        plane.update(np.full(plane.buffer_size // 2, level, dtype="<u2").tobytes())
    for _ in range(30):
        made = conformed(VideoReformatter(), black, black, (322, 242), "yuv420p10le")
        luma = np.frombuffer(memoryview(made.planes[0]), "<u2").reshape(242, -1)[:, :322]
        assert (luma == 64).all()


@pytest.mark.parametrize(
    ("frame_ms", "sample_ms", "packet_ms", "begin_ms", "unhidden_ms"),
    [
        *((0, 5, 5, 0, 0), (23, -23, -23, 0, 0), (23, 0, -23, 0, 0), (0, 0, -23, 0, 0), (23, 10, 10, 23, 23)),
        *((0, None, None, 0, 0), (0, -23, -23, 0, -23), (-40, 0, 0, -40, -40)),
    ],
)
def test_a_file_begins_with_what_comes_first(
    frame_ms: int, sample_ms: int | None, packet_ms: int | None, begin_ms: int, unhidden_ms: int
) -> None:
    """An undecodable packet counts for the start unless it is before 0; edit lists also hide samples before 0."""
    sound = tuple(None if each is None else each * MILLISECOND for each in (sample_ms, packet_ms))
    for hides_early, expected_ms in ((True, begin_ms), (False, unhidden_ms)):
        found = begin_s(frame_ms * MILLISECOND, [(sound[0], sound[1])], hides_early=hides_early)
        assert found == expected_ms * MILLISECOND


@pytest.mark.parametrize(("name", "states_dts"), [("clip.mkv", False), ("clip.mp4", True)])
def test_decoding_times_that_only_ffmpeg_infers_are_not_the_files(
    name: str, tmp_path: Path, *, states_dts: bool
) -> None:
    """Matroska has no decoding times: those that FFmpeg infers are wrong if sound begins seconds earlier."""
    packets = scan_output(str(make_clip(tmp_path / name, Clip(times=constant_times(9))))).packets
    assert {packet.dts is not None for packet in packets} == {states_dts}


def test_the_stream_must_start_with_a_keyframe_hide_nothing_and_run_forward() -> None:
    """Each broken rule of the stream fails its own check."""
    good = OutputPacket(0, 0, key=True, discarded=False)
    seconds = {(40, 40, False): [], (40, 40, True): ["stream.hidden"], (40, 0, False): ["stream.clock"]}
    for (pts, dts, hidden), expected in (seconds | {(40, 41, False): ["stream.clock"]}).items():
        second = OutputPacket(pts, dts, key=False, discarded=hidden)
        assert failed(check_stream(scan(good, second), 2 - hidden)) == expected
    assert failed(check_stream(scan(OutputPacket(0, 0, key=False, discarded=False)), 1)) == ["stream.first-key"]
    assert failed(check_stream(scan(good), 2)) == ["stream.packets"]


def test_access_points_are_named_by_the_frame_they_show() -> None:
    """The number of a keyframe counts the frames shown before it, not the packets."""
    track = [(0, True), (80, False), (40, False), (120, True), (200, False), (160, False)]
    packets = [OutputPacket(pts, n * 40 - 40, key=key, discarded=False) for n, (pts, key) in enumerate(track)]
    assert scan(*packets).access_points() == {0: 0, 3: 3}


def test_a_declared_loss_is_no_failure() -> None:
    """A warning excuses the checks whose names begin with its words, and no other check."""
    names = ("audio.1.payload", "audio.1", "audio.10.payload", "audio")
    checks = [check(name, 3, 0, held="none is lost") for name in names]
    lost = Warning_(code="audio-damaged", message="packets are missing", checks=("audio.1",))
    marked = with_declared(checks, [lost])
    assert [one.failed for one in marked] == [False, False, True, True]
    assert marked[0].declared == "audio-damaged: packets are missing"
    assert check("a.b", 3, 0, held="none is lost").line() == "FAILED   a.b: expected 3, found 0"
    assert check("a.b", 3, 3, held="none is lost").line() == "ok       a.b: none is lost"


def verdict(*checks: Check) -> Verdict:
    """Return a verdict of these checks."""
    files, frames = {"source": "a.mkv", "output": "a.mp4"}, {"source_frames": 3, "output_frames": 3}
    return Verdict(**files, **frames, repaired={}, damaged_packets=0, pictures=None, checks=checks, wall_s=0.1)


def test_people_read_complete_and_lossless() -> None:
    """A verdict without failures is complete; it is lossless only if all frames are identical."""
    likeness = dict.fromkeys(("psnr_y_mean_db", "psnr_y_min_db", "psnr_u_mean_db", "psnr_v_mean_db"), 100)
    likeness |= {"ssim_y_mean": 1, "ssim_y_min": 1}
    alike = PictureNumbers(**likeness, worst_frames=((0, 100, 1),), identical=True)
    held = verdict(check("frames.count", 3, 3))
    wrong = verdict(check("frames.count", 3, 3), check("times.equal", "all", "one off", passed=False))
    assert (held.exact, wrong.model_dump(mode="json")["exact"]) == (True, False)
    same = held.model_copy(update={"pictures": alike})
    assert [one.lines()[-1] for one in (held, wrong, same)] == [
        "complete: 3 frames, 1 check",
        "NOT complete: times.equal",
        "complete and lossless: 3 frames, 1 check",
    ]
    for changes in (
        {"output_frames": 2},
        {"checks": (check("tracks.audio", 1, 0),)},
        {"pictures": alike.model_copy(update={"identical": False})},
    ):
        assert not same.model_copy(update=changes).lossless


@pytest.mark.parametrize("changes", [0, 1])
def test_one_sample_makes_pictures_differ(changes: int) -> None:
    """Pictures are identical only if every sample is, whatever their PSNR rounds to."""
    comparison = PictureComparison()
    planes = np.arange(96 * 64, dtype=np.uint8).reshape(96, 64) // 3
    other = planes.copy()
    other[3, 5] ^= changes
    for pair in ((planes, planes), (planes, other)):
        comparison.add(*(VideoFrame.from_ndarray(each, format="yuv420p") for each in pair))
    comparison.finish()
    assert comparison.numbers() is not None
    assert comparison.identical is not bool(changes)


def test_a_run_of_silence_is_found_at_its_time() -> None:
    """Of several places with the same packets, the one nearest in time is found."""
    silence, times = [7] * 10, [Fraction(n, 50) for n in range(10)]
    assert find_run(silence, times, [7] * 3, Fraction(6, 50)) == 6
    assert find_run(silence, times, [7] * 3, Fraction(9, 50)) == 7
    assert find_run(silence, times, [7] * 3, None) == 0
    assert find_run([1, 2, 7, 7], times[:4], [2, 7], Fraction(3, 50)) == 1
    assert find_run(silence, times, [7, 8], Fraction(0)) is None
    assert find_run(silence, times, [], Fraction(0)) is None


def test_a_part_of_sound_that_steps_back_lacks_nothing_inside() -> None:
    """Packets outside a part may be missing between those inside, but none inside."""
    times = [Fraction(n, 10) for n in (0, 1, 2, 3, 4, 1, 2, 3)]
    whole, part_s = [10, 11, 12, 13, 14, 21, 22, 23], Fraction(3, 10)
    assert find_kept(whole, times, [10, 11, 12, 21, 22], part_s) == [0, 1, 2, 5, 6]
    assert find_kept(whole, times, [10, 11, 12, 13, 21, 22], part_s) == [0, 1, 2, 3, 5, 6]
    assert find_kept(whole, times, [10, 11, 12, 22], part_s) is None
    assert find_kept(whole, times, [10, 11, 12, 21], part_s) is None
    assert find_kept(whole, times, [10, 11, 12, 21, 22, 9], part_s) is None


@pytest.mark.parametrize(
    ("codec", "payload", "words"),
    [
        ("subrip", rb"{\an8}Top line", "Top line"),
        ("subrip", b"if a < 5 > b then", "if a < 5 > b then"),
        ("subrip", b"I <3 you -- <MUSIC> -- {note}", "I <3 you -- <MUSIC> -- {note}"),
        ("subrip", rb'<font color="#ff0000">red</font> {\pos(10,20)}pos {\smile}', r"red pos {\smile}"),
        ("mov_text", b"\x00\x0f{\\an8}<i>it</i>", r"{\an8}<i>it</i>"),
        ("mov_text", b"\x00\x06\xfe\xff\x00H\x00i", "Hi"),
        ("ass", rb"0,0,Default,,0,0,0,,{note}kept \{note\} a < 5", "kept {note} a < 5"),
        ("ass", rb"0,0,Default,,0,0,0,,{\p1}m 0 0 l 9 9{\p0}seen", "seen"),
        # Styles and framing do not count, lines do.
        ("subrip", b"<i>Hello</i>\r\nworld", "Hello\nworld"),
        ("mov_text", b"\x00\x0bHello\nworld\x00\x00\x00\x0cstyl0000", "Hello\nworld"),
        ("ass", rb"0,0,Default,,0,0,0,,{\b1}Hello{\b0}\Nworld", "Hello\nworld"),
        ("webvtt", b"Hello\nworld", "Hello\nworld"),
        ("webvtt", b"<v Ann>5 &lt; 6 &amp; 7</v> <00:01.000>8", "5 < 6 & 7 8"),
    ],
)
def test_words_that_look_like_markup_are_words(codec: str, payload: bytes, words: str) -> None:
    """Only what a format's table calls a tag is left out of a cue's words."""
    assert plain_text(codec, payload) == words


@pytest.mark.parametrize(
    ("pix_fmt", "compared"),
    [
        *(("yuv420p", "yuv420p"), ("yuvj422p", "yuv422p"), ("yuv422p10le", "yuv422p10le"), ("nv12", "yuv420p")),
        *(("yuva444p12le", "yuv444p12le"), ("p010le", "yuv420p10le")),
        *((pix_fmt, "yuv444p") for pix_fmt in ("gbrp", "gray", "pal8")),
    ],
)
def test_pictures_are_compared_as_planar_yuv_of_their_depth(pix_fmt: str, compared: str) -> None:
    """Pictures keep sampling and depth for the comparison, but no packing, alpha or RGB."""
    assert comparable_format(pix_fmt) == compared


@pytest.mark.parametrize(
    ("matrix", "turn"),
    [
        ((65536, 0, 0, -2, 65536, 0, 0, 0, 1 << 30), None),
        ((65536, 0, 0, -6554, 65536, 0, 0, 0, 1 << 30), (1, 0, -1, 1)),
        ((0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30), (0, 1, -1, 0)),
        ((-2, -1, 0, 0, 65536, 0, 0, 0, 1 << 30), (-1, 0, 0, 1)),
        (None, None),
    ],
)
def test_an_invisible_skew_is_ignored(matrix: tuple[int, ...] | None, turn: tuple[int, ...] | None) -> None:
    """A display matrix that differs from the identity by a rounding error neither turns nor skews."""
    assert _turn(matrix) == turn


@pytest.mark.parametrize(("last_s", "passed"), [(Fraction(41, 1000), True), (Fraction(3, 50), False)])
def test_a_last_picture_of_one_and_a_half_frames_is_too_long(last_s: Fraction, *, passed: bool) -> None:
    """The last picture's duration may be rounded, but not by half a frame."""
    tick_s = Fraction(1, 25)
    spread = Spread(samples=2, shortest_s=tick_s, total_s=tick_s + last_s, end_s=tick_s + last_s, last_s=last_s)
    output = StatedFile(tracks=(StatedTrack(kind=StatedKind.VIDEO, spread=spread),))
    showing = ExpectedTimes(times_s=[Fraction(0), tick_s], last_s=tick_s, nominal_s=tick_s)
    found = failed(list(check_containers(Containers(source=None, output=output, video_track=0), showing)))
    assert found == ([] if passed else ["times.last"])


@pytest.mark.parametrize(
    ("was", "is_damaged", "expected"),
    [(None, False, False), (None, True, None), (True, True, True), (False, True, False)],
)
def test_fields_that_only_lost_pictures_stated_are_not_missed(
    *, was: bool | None, is_damaged: bool, expected: bool | None
) -> None:
    """If packets of the source do not decode, its other pictures cannot prove that the source has no fields."""
    life = StatedPictures()
    life.source.fields, life.output.fields = [was, was], [True, True]
    found = {each.name: each.passed for each in life.checks((None, None), is_damaged=is_damaged)}
    assert found["pictures.interlaced"] is expected


@pytest.mark.parametrize(
    ("shown", "end_s", "stated_s", "expected_s"),
    [
        ((0, 40, 80, 120), Fraction(7, 100), None, Fraction(40, 1000)),
        ((0, 40, 80, 120), Fraction(15, 100), Fraction(1, 100), Fraction(1, 100)),
        ((0, 40), Fraction(12, 100), Fraction(4, 100), Fraction(80, 1000)),
        ((0, 40), Fraction(3), Fraction(4, 100), Fraction(4, 100)),
        ((0, 40), None, Fraction(4, 100), Fraction(4, 100)),
        ((0, 40), Fraction(3), None, None),
    ],
)
def test_the_last_picture_of_a_part_stays_for_those_that_are_lost(
    shown: tuple[int, ...], end_s: Fraction | None, stated_s: Fraction | None, expected_s: Fraction | None
) -> None:
    """A part whose last pictures do not decode ends as requested; a whole film with the last one that decodes."""
    promised = (0, 40, 80, 120)
    timeline = Timeline(
        order=promised[: len(shown)], times=shown, packets=promised, nominal=Fraction(40), time_base=MILLISECOND
    )
    last = max(n for n, ticks in enumerate(shown) if end_s is None or ticks * MILLISECOND < end_s)
    assert last_shown_s(timeline, last, end_s, stated_s) == expected_s


@pytest.mark.parametrize(
    ("before_hz", "after_hz", "expected", "passes"),
    [
        ([44_100, 48_000], 48_000, "at least 44100 Hz, throughout", True),
        ([48_000], 44_100, "at least 44100 Hz, throughout", True),
        ([22_050, 96_000], 22_050, "22050 Hz or at least 44100 Hz, throughout", True),
        ([22_050, 96_000], 32_000, "22050 Hz or at least 44100 Hz, throughout", False),
        ([8000, 22_050], 16_000, "8000 Hz or at least 22050 Hz, throughout", False),
        ([8000, 22_050], 32_000, "8000 Hz or at least 22050 Hz, throughout", True),
    ],
)
def test_the_check_of_a_sample_rate_names_all_rates_that_pass(
    before_hz: list[int], after_hz: int, expected: str, *, passes: bool
) -> None:
    """An output has one of the source's rates, or a rate that loses nothing that can be heard."""
    left, right = (
        SoundTrack(
            url="",
            number=0,
            index=0,
            zero_s=Fraction(0),
            codec="aac",
            rate_hz=rate,
            frame_samples=1024,
            tick_s=Fraction(1, rate),
        )
        for rate in (before_hz[0], after_hz)
    )
    found = _check_rate("audio.0", left, right, Heard([], rates_hz=before_hz), Heard([], rates_hz=[after_hz]))
    assert (found.expected, found.passed) == (expected, passes)
