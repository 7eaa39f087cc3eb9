"""``--burn-subtitles`` in whole jobs: the same pictures with any cuts, checked by ``verify``'s own reference."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.errors import InputNotFound, Unsupported, UsageError, WouldLose
from codecfleet.jobs.journal.header import asks_again, difference, header_of
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.fonts import a_font
from tests.subtitle_tracks import Cue, bars, pgs_packet, vobsub_packet, with_subtitles
from tests.sweeps import swept

from .local_jobs import lossless, planned, shown, shown_for_any_cuts, spec_of, verified
from .test_filters import CLIP as FROM_ZERO
from .test_filters import PQ, TEN_BITS

BEGIN_MS = 1000
FRAMES = 60
TIMES = constant_times(FRAMES, start=BEGIN_MS)
CLIP = replace(FROM_ZERO, times=TIMES, keyframes=frozenset(range(0, FRAMES, 6)))
CANVAS = (128, 96)
CUES = (
    Cue(Fraction(4, 5), pgs_packet(CANVAS, [(30, 4, bars(40, 10))])),
    # over three of the cuts
    Cue(Fraction(6, 5), pgs_packet(CANVAS, [(11, 61, bars(80, 21)), (4, 5, bars(15, 9))])),
    Cue(Fraction(2301, 1000), pgs_packet(CANVAS, [])),
    Cue(Fraction(2500, 1000), pgs_packet(CANVAS, [(90, 70, bars(38, 26))])),
    Cue(Fraction(2501, 1000), pgs_packet(CANVAS, [(2, 40, bars(60, 20))])),
)
STEPS: dict[str, dict[str, object]] = {
    "alone": {},
    "all": {"crop": (96, 64, 16, 8), "rotate": "90", "scale": (None, 80), "pad": (160, 128), "overlay_at": "top-left"},
    "scaled": {"scale": (None, 72)},
    "part": {"start_s": Fraction(2, 5), "end_s": Fraction(9, 5), "flip": "h"},
    "deinterlaced": {"deinterlace": "on"},
    "fps": {"fps": Fraction(30)},
    "grid": {"keyframe_interval_s": Fraction(1, 2)},
}


def film(folder: Path, clip: Clip = CLIP, cues: tuple[Cue, ...] = CUES) -> Path:
    """Return a film with a PGS track in English, and an empty one."""
    plain = make_clip(folder / "plain.mp4", replace(clip, times=TIMES, keyframes=CLIP.keyframes))
    empty = (Cue(Fraction(1), pgs_packet(CANVAS, [])),)
    return with_subtitles(plain, folder / "source.mkv", [("pgssub", "deu", empty), ("pgssub", "eng", cues)])


@pytest.mark.parametrize(
    ("clip", "name"),
    swept([(CLIP, "alone"), *((CLIP, name) for name in STEPS if name != "alone"), (TEN_BITS, "alone")]),
)
def test_pictures_do_not_depend_on_the_cuts(tmp_path: Path, clip: Clip, name: str) -> None:
    """One segment or five, one worker or three: the same pictures reach the encoder."""
    options = {**STEPS[name], "pix_fmt": clip.pix_fmt[:7], "burn_subtitles": "eng"}
    shown_for_any_cuts(film(tmp_path, clip), tmp_path, **options)


def test_each_picture_has_what_is_on_screen_then(tmp_path: Path) -> None:
    """A subtitle is in the pictures from its start until before its end."""
    source = film(tmp_path)
    lossless(source, tmp_path / "burnt.mkv", burn_subtitles=1)
    lossless(source, tmp_path / "unburnt.mp4", subtitles="none")
    burnt, plain = shown(tmp_path / "burnt.mkv"), shown(tmp_path / "unburnt.mp4")
    changed = [one != other for one, other in zip(burnt, plain, strict=True)]
    # The first subtitle begins before the film; 1.5 s is between the pictures at 1.48 and 1.52 s.
    assert changed == [not 1.301 <= 0.04 * number < 1.5 for number in range(len(plain))]


@pytest.mark.parametrize(
    ("clip", "options"),
    swept(
        [
            (CLIP, STEPS["all"]),
            (CLIP, STEPS["alone"]),
            (CLIP, STEPS["fps"]),
            (CLIP, STEPS["part"]),
            (PQ, {"codec": "hevc", "quality": 1}),
            (PQ, {"tonemap": "bt2390", "pix_fmt": "yuv420p"}),
            (TEN_BITS, {"codec": "hevc", "quality": 1}),
        ]
    ),
)
def test_verify_burns_the_same_into_its_reference(tmp_path: Path, clip: Clip, options: dict[str, object]) -> None:
    """``verify`` burns the same subtitles with its own code, and notices moved or missing ones."""
    source, output = film(tmp_path, clip), tmp_path / "output.mkv"
    report = lossless(source, output, burn_subtitles="eng", **options)
    verdict = verified(source, output, report)
    assert verdict.exact
    assert verdict.pictures is not None
    assert verdict.pictures.psnr_y_min_db > 32
    assert report.burnt is not None
    told = report.model_copy(update={"burnt": report.burnt.model_copy(update={"screen": ("9", "-9", "128", "96")})})
    elsewhere = verified(source, output, told).pictures
    assert elsewhere is not None
    assert elsewhere.psnr_y_mean_db < verdict.pictures.psnr_y_mean_db - 6
    film(tmp_path, clip, CUES[:2])
    with pytest.raises(UsageError, match="have changed"):
        verified(source, output, report)


def test_the_track_is_not_carried_beside(tmp_path: Path) -> None:
    """The burnt track is left out of the output; the others are copied."""
    report = lossless(film(tmp_path), tmp_path / "output.mkv", burn_subtitles="eng")
    tracks = {track.source_index: track for track in report.tracks if track.kind == "subtitle"}
    assert [tracks[index].action for index in sorted(tracks)] == ["copied", "dropped"]
    assert tracks[2].reason == "it is burnt into the pictures"
    assert report.warnings == ()
    assert {choice.code for choice in report.choices} == {"subtitles-burnt", "subtitle-left-out"}


def test_only_what_a_segment_shows_travels(tmp_path: Path) -> None:
    """A segment's work has only the cues that are on screen in it."""
    plan = planned(film(tmp_path), burn_subtitles="eng", segment_s=Fraction(12, 25))
    sent = [plan.work("job", n, n, 0).filters.burn for n in range(len(plan.segments))]
    begin = [plan.relative_s(segment.start_ticks) for segment in plan.segments]
    shown_s = [[(float(each.start_s), float(each.end_s)) for each in burn.subtitles] for burn in sent if burn]
    assert len(shown_s) == len(begin) >= 4
    assert shown_s[1] == [(1.2, 2.301)]
    assert begin[1] > Fraction(1, 5)
    assert plan.filters.burn is not None
    assert {burn.name for burn in sent if burn} == {plan.filters.burn.name}


def test_vobsub_covers_the_picture(tmp_path: Path) -> None:
    """The canvas covers the picture, whatever the sizes."""
    plain = make_clip(tmp_path / "plain.mp4", replace(CLIP, width=160))
    cues = [Cue(Fraction(6, 5), vobsub_packet(10, 60, bars(80, 20), Fraction(6, 5)))]
    header = b"size: 128x96\npalette: 000000, ffffff, ff0000, 0000ff" + b", 000000" * 12 + b"\n"
    source = with_subtitles(plain, tmp_path / "source.mkv", [("dvdsub", "eng", cues)], extradata=header)
    report = lossless(source, tmp_path / "output.mkv", burn_subtitles=0, quality=5)
    verdict = verified(source, tmp_path / "output.mkv", report)
    assert verdict.exact
    assert verdict.pictures is not None
    assert verdict.pictures.psnr_y_min_db > 32


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A missing track, interlaced pictures and RGB are refused in one line each."""
    source = film(tmp_path)
    for options, words in (
        ({"burn_subtitles": 2}, "no subtitle track 2"),
        ({"burn_subtitles": "fra"}, "no subtitle track in fra"),
        ({"burn_subtitles": 0, "codec": "hevc", "pix_fmt": "gbrp"}, "gbrp"),
    ):
        with pytest.raises(Unsupported, match=words):
            planned(source, **options)
    options = (*CLIP.options, ("x264-params", "interlaced=1"))
    with pytest.raises(Unsupported, match="interlaced"):
        planned(film(tmp_path, replace(CLIP, options=options)), burn_subtitles=0)


def test_a_track_of_nothing_is_said(tmp_path: Path) -> None:
    """An empty track is a warning, and with ``--strict`` an error."""
    source = film(tmp_path)
    assert [warning.code for warning in planned(source, burn_subtitles="deu").warnings] == ["subtitle-empty"]
    with pytest.raises(WouldLose, match="is empty"):
        planned(source, burn_subtitles="deu", strict=True)


def text_film(folder: Path) -> Path:
    """Return a film with a SubRip track that has two cues on screen at once."""
    cues = (
        Cue(Fraction(6, 5), b"Hello", Fraction(1)),
        Cue(Fraction(7, 5), b"World", Fraction(1, 5)),
        Cue(Fraction(5, 2), b"<i>Good</i> bye", Fraction(9)),
    )
    plain = make_clip(folder / "plain.mp4", CLIP)
    return with_subtitles(plain, folder / "source.mkv", [("subrip", "eng", cues)])


def font(folder: Path) -> str:
    """Return the path of a font."""
    path = folder / "font.ttf"
    path.write_bytes(a_font())
    return str(path)


def test_another_font_is_another_job(tmp_path: Path) -> None:
    """An unfinished job does not continue with another font, and ``verify`` says what has changed."""
    source, place = text_film(tmp_path), font(tmp_path)
    spec = spec_of(source, tmp_path / "out.mkv", burn_subtitles=0, subtitle_font=place)
    before = header_of(plan_transcode(spec))
    report = lossless(source, tmp_path / "burnt.mkv", burn_subtitles=0, subtitle_font=place)
    assert asks_again(before, spec)
    Path(place).write_bytes(a_font() + b"\0")
    assert not asks_again(before, spec)
    changed = ("the font of the subtitles has changed", "put the font back as it was")
    assert difference(before, header_of(plan_transcode(spec))) == changed
    assert verified(source, tmp_path / "burnt.mkv", report).exact
    told = report.model_copy(update={"burnt": report.burnt and report.burnt.model_copy(update={"sha256": "0" * 64})})
    with pytest.raises(UsageError, match="or the font"):
        verified(source, tmp_path / "burnt.mkv", told)


def test_text_needs_a_font(tmp_path: Path) -> None:
    """Without a font the error names the option; a font that lacks letters is refused before the work."""
    source = text_film(tmp_path)
    with pytest.raises(Unsupported, match="needs a font") as caught:
        planned(source, burn_subtitles=0)
    assert "--subtitle-font" in caught.value.next_step
    with pytest.raises(InputNotFound):
        planned(source, burn_subtitles=0, subtitle_font=str(tmp_path / "none.ttf"))
