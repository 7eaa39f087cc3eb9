"""``--fps`` in whole jobs: pictures follow the rule at any cuts, and ``verify`` computes its own list of them."""

from bisect import bisect_right
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codecfleet.errors import InputDamaged, Unsupported
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .local_jobs import lossless, planned, shown, verified
from .test_keyframe_interval import on_grid, read_back

FRAMES = 60
GAP = (*range(0, 1000, 40), *range(1600, 2200, 33), *range(2200, 3000, 50))
X264 = "keyint=6:min-keyint=6:scenecut=0:bframes=2"
CLIPS = {
    "even": Clip(times=constant_times(FRAMES), options=(("x264-params", X264),)),
    "a-gap": Clip(times=GAP, options=(("x264-params", X264),)),
    "open-gop": Clip(times=constant_times(FRAMES), options=(("x264-params", f"{X264}:open-gop=1"),)),
    "late": Clip(times=tuple(588_000 + time for time in GAP), options=(("x264-params", X264),)),
}
RATES = (Fraction(30000, 1001), Fraction(12), Fraction(50), Fraction(25))


def due(source: Path, fps: Fraction, nominal_us: int = 40_000) -> list[tuple[Fraction, bytes]]:
    """Return for each output picture its time in seconds after the first, and which source picture it shows."""
    pictures = shown(source)
    times = [each.ticks for each in pictures]
    step = 1_000_000 / fps
    lead = min(step, nominal_us) / 2
    found: list[tuple[Fraction, bytes]] = []
    while not found or len(found) * step + lead < times[-1] + nominal_us:
        place = bisect_right(times, len(found) * step + lead) - 1
        found.append((len(found) / fps, pictures[max(0, place)].digest))
    return found


@pytest.mark.parametrize(("name", "fps"), swept([(name, fps) for fps in RATES for name in ("a-gap", *CLIPS)][1:]))
def test_pictures_are_the_rules_however_the_film_is_cut(tmp_path: Path, name: str, fps: Fraction) -> None:
    """For any segments and workers, each picture has the rate's next time, and shows what was on screen then."""
    source = make_clip(tmp_path / "source.mkv", CLIPS[name])
    expected = due(source, fps, round(1_000_000 / planned(source, fps=fps).index.frame_rate))
    counts = set()
    for segment_s in (Fraction(100), Fraction(12, 25)):
        outputs = [tmp_path / f"{float(segment_s)}-{workers}.mp4" for workers in (1, 3)]
        reports = [
            lossless(source, output, fps=fps, segment_s=segment_s, workers=workers)
            for output, workers in zip(outputs, (1, 3), strict=True)
        ]
        assert len({report.proof.output_sha256 for report in reports}) == 1
        assert [each.digest for each in shown(outputs[1])] == [digest for _, digest in expected]
        assert read_back(outputs[1])[0] == [time for time, _ in expected]
        assert verified(source, outputs[1], reports[1]).exact
        counts.add(len(reports[1].segments))
    assert len(counts) == 2


@pytest.mark.parametrize("options", swept([{}, {"deinterlace": "on"}, {"start_s": Fraction(7, 10)}, {"codec": "vp9"}]))
def test_keyframes_lie_at_multiples_of_the_interval(tmp_path: Path, options: dict[str, object]) -> None:
    """The interval counts pictures of the new rate, even if a cut falls between repeats of one source picture."""
    source = make_clip(tmp_path / "source.mkv", CLIPS["a-gap"])
    fps, interval_s, sums = Fraction(60000, 1001), Fraction(1, 3), {}
    for segment_s in (Fraction(100), Fraction(1, 2)):
        output = tmp_path / f"{float(segment_s)}.mp4"
        report = lossless(source, output, fps=fps, keyframe_interval_s=interval_s, segment_s=segment_s, **options)
        times, keyframes = read_back(output)
        assert times == [number / fps for number in range(len(times))]
        assert keyframes == on_grid(times, interval_s)
        assert verified(source, output, report).exact
        sums[len(report.segments)] = [each.digest for each in shown(output)]
    (one, whole), (_, cut) = sums.items()
    assert one == 1
    assert whole == cut


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([17, 33, 40, 41, 80, 333, 1500]), min_size=3, max_size=60),
    st.sets(st.integers(1, 59), max_size=8),
    st.sampled_from([*RATES, Fraction(1), Fraction(240)]),
    st.none() | st.fractions(Fraction(1, 4), 1, max_denominator=8),
)
@pytest.mark.slow
def test_any_film_at_any_rate(
    tmp_path: Path, steps: list[int], keys: set[int], fps: Fraction, interval_s: Fraction | None
) -> None:
    """For any steps between pictures and any access points, ``verify`` agrees with its own list."""
    times = [0]
    for step in steps:
        times.append(times[-1] + step)
    keyframes = frozenset({0, *(key for key in keys if key <= len(steps))})
    clip = Clip(times=tuple(times), keyframes=keyframes, options=(("bf", "2"), ("g", "250")))
    source, output = tmp_path / "source.mkv", tmp_path / "output.mp4"
    source.unlink(missing_ok=True)
    make_clip(source, clip)
    interval_s = interval_s if interval_s and interval_s * fps >= 1 else None
    report = lossless(source, output, fps=fps, segment_s=Fraction(1, 5), keyframe_interval_s=interval_s, overwrite=True)
    assert verified(source, output, report).exact


@pytest.mark.parametrize(
    "part", swept([{"start_s": Fraction(7, 10), "end_s": Fraction(6, 5)}, {"end_s": Fraction(3, 2)}])
)
def test_a_part_counts_from_its_first_picture(tmp_path: Path, part: dict[str, object]) -> None:
    """No picture from outside the part is shown, and the last one is held until its end."""
    source = make_clip(tmp_path / "source.mkv", CLIPS["a-gap"])
    report = lossless(source, tmp_path / "output.mp4", fps=Fraction(10), **part)
    assert verified(source, tmp_path / "output.mp4", report).exact
    assert report.frames == {Fraction(6, 5): 5, Fraction(3, 2): 15}[part["end_s"]]  # type: ignore[index] # as above


def test_verify_notices_another_rate(tmp_path: Path) -> None:
    """If the report names a rate, the number of pictures and their times must match it."""
    source = make_clip(tmp_path / "source.mkv", CLIPS["even"])
    report = lossless(source, tmp_path / "output.mp4", fps=Fraction(30))
    told = report.model_copy(update={"frame_rate": "24"})
    failed = {each.name for each in verified(source, tmp_path / "output.mp4", told).failures}
    assert {"frames.count", "times.equal"} <= failed


SOLID = replace(CLIPS["even"], options=(("x264-params", f"{X264}:bframes=0"),))
"""Closed groups of six pictures."""
LENGTH_BYTES, HEAD_BYTES = 4, 5
"""How many bytes to keep of a packet: in mp4 a NAL unit's length field, or that field and the unit's header.

The unit's type is in the header, and still marks the packet as an access point.
"""


def spoil(source: Path, packets: range, kept_bytes: int = HEAD_BYTES) -> None:
    """Overwrite all but the first bytes of packets so that they cannot be decoded."""
    index = read_source(str(source)).index
    data = bytearray(source.read_bytes())
    for packet in packets:
        place, size = int(index.pos_bytes[packet]), int(index.sizes_bytes[packet])
        data[place + kept_bytes : place + size] = bytes(size - kept_bytes)
    source.write_bytes(data)


def check_one_and_many(source: Path, folder: Path, **options: object) -> None:
    """Check that many segments show the same as one, and that ``verify`` agrees."""
    outputs = [folder / name for name in ("one.mp4", "many.mp4")]
    reports = [
        lossless(source, output, fps=Fraction(30), segment_s=segment_s, **options)
        for output, segment_s in zip(outputs, (Fraction(100), Fraction(6, 25)), strict=True)
    ]
    assert shown(outputs[0]) == shown(outputs[1])
    assert reports[1].frames == reports[0].frames
    assert len(reports[1].segments) > 1
    assert sum(segment.damaged_packets for segment in reports[1].segments) > 0
    assert verified(source, outputs[1], reports[1]).exact


@pytest.mark.parametrize("kept_bytes", [LENGTH_BYTES, HEAD_BYTES])
def test_a_segment_whose_first_picture_is_damaged_goes_on_showing_the_one_before(
    tmp_path: Path, kept_bytes: int
) -> None:
    """If the beginning of a segment cannot be decoded, it repeats an earlier picture, as a single segment would."""
    source = make_clip(tmp_path / "source.mp4", SOLID)
    spoil(source, range(24, 25), kept_bytes)
    check_one_and_many(source, tmp_path)


@pytest.mark.parametrize(
    ("lost", "part"),
    swept(
        [
            (range(24, 30), {"start_s": Fraction(24, 25), "end_s": Fraction(2)}),
            (range(24, 30), {}),
            (range(24, 36), {"start_s": Fraction(24, 25)}),
            (range(54, 60), {}),
            (range(24, 30), {"keyframe_interval_s": Fraction(6, 25), "start_s": Fraction(24, 25)}),
        ]
    ),
)
def test_segments_of_which_nothing_decodes_show_what_their_neighbour_has(
    tmp_path: Path, lost: range, part: dict[str, object]
) -> None:
    """The preceding picture stays; at the start of a part, the first decodable picture is shown, as in one segment."""
    source = make_clip(tmp_path / "source.mp4", SOLID)
    spoil(source, lost)
    check_one_and_many(source, tmp_path, **part)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fps": Fraction(30)}, "no requested picture of .* can be decoded"),
        ({}, "no requested picture of .* can be decoded"),
        ({"strict": True}, "is damaged"),
    ],
)
def test_a_part_of_which_nothing_decodes_is_refused_as_such(
    tmp_path: Path, options: dict[str, object], error: str
) -> None:
    """The error blames the input and not the encoder."""
    source = make_clip(tmp_path / "source.mp4", SOLID)
    spoil(source, range(24, 36))
    part = {"start_s": Fraction(24, 25), "end_s": Fraction(36, 25), "segment_s": Fraction(6, 25)}
    with pytest.raises(InputDamaged, match=error):
        lossless(source, tmp_path / "output.mp4", **part, **options)


def test_fields_need_to_become_frames_first(tmp_path: Path) -> None:
    """Repeating or dropping interlaced pictures would show their fields out of order."""
    clip = replace(CLIPS["even"], options=(("x264-params", f"{X264}:interlaced=1"),))
    source = make_clip(tmp_path / "source.mkv", clip)
    with pytest.raises(Unsupported, match="interlaced"):
        planned(source, fps=Fraction(50))
    report = lossless(source, tmp_path / "output.mp4", fps=Fraction(50), deinterlace="auto")
    assert report.frames == 2 * FRAMES
