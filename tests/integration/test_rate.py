"""``--bitrate`` and ``--size`` in real jobs: what is reached, the same bytes from any workers, and after a kill."""

from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet import Report
from codecfleet.errors import JournalRefused, SizeExceeded, Unsupported, UsageError
from codecfleet.jobs.plan.plan import plan_transcode
from tests.small_film import small_film
from tests.sweeps import swept

from .local_jobs import planned, spec_of, transcode, verified
from .test_resume import interrupted


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven seconds of small pictures in almost lossless H.264, with an access point every second; and their sound."""
    return small_film(tmp_path_factory.mktemp("film") / "film.mkv", frames=168, sound=True)


def made(source: Path, output: Path, workers: int = 2, **options: object) -> Report:
    """Transcode in segments of about one second."""
    asked = {"segment_s": Fraction(1), "preset": 1, "workers": workers, **options}
    return transcode(spec_of(source, output, **asked), slots=workers)


@pytest.mark.parametrize(
    "codec", swept(["h264", "av1", "hevc", "vp9"], in_ci=True, is_slow=lambda codec: codec in ("hevc", "vp9"))
)
def test_the_film_has_the_rate(codec: str, film: Path, tmp_path: Path) -> None:
    """The average is within 1 %, segments differ as their pictures do, and the report says what was done."""
    output = tmp_path / "out.mkv"
    report = made(film, output, codec=codec, bitrate_bps=80_000)
    with av.open(str(output)) as container:
        size = sum(packet.size for packet in container.demux(video=0))
    assert report.rate is not None
    # An encoder with whole CRFs comes as near as the smallest step of a segment.
    assert size * 8 / Fraction(report.duration_s) == pytest.approx(80_000, rel=0.01 if codec != "av1" else 0.02)
    assert abs(report.rate.video_bytes - size) < 4 * report.frames
    assert report.rate.asked == "80000 bit/s"
    assert report.rate.encodes >= len(report.segments)
    sizes = [segment.payload_bytes / segment.frames_out for segment in report.segments]
    assert max(sizes) > 1.3 * min(sizes)
    assert verified(film, output, report).exact


@pytest.mark.parametrize(
    "name", swept(["out.mp4", "out.ts", "out.mkv"], in_ci=True, is_slow=lambda name: name == "out.mkv")
)
def test_the_file_has_at_most_the_size(name: str, film: Path, tmp_path: Path) -> None:
    """Sound and container count, so a file of that size is what a user gets; nothing else is left in the folder."""
    report = made(film, tmp_path / name, size_bytes=280_000, audio="aac")
    assert report.output_bytes == (tmp_path / name).stat().st_size
    assert 0.98 * 280_000 <= report.output_bytes <= 280_000
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_any_workers_give_the_same_bytes(film: Path, tmp_path: Path) -> None:
    """Each pass is decided from the sizes of all segments, not from the order in which they end."""
    reports = [made(film, tmp_path / f"{n}.mp4", n, bitrate_bps=90_000) for n in (1, 3)]
    assert len({report.proof.output_sha256 for report in reports}) == 1
    assert reports[0].rate == reports[1].rate


def test_a_resumed_job_gives_the_same(film: Path, tmp_path: Path) -> None:
    """In any pass: what was encoded is not encoded again, and the decisions are the same."""
    options = {"segment_s": Fraction(1), "preset": 1, "size_bytes": 120_000, "end_s": 4, "overwrite": True}
    whole, spec = (
        transcode(spec_of(film, tmp_path / "whole.mp4", **options)),
        spec_of(film, tmp_path / "o.mp4", **options),
    )
    for after in (2, 6, 14):
        interrupted(spec, after=after)
        with pytest.raises(JournalRefused, match="--size was 120000 and is 120001"):
            transcode(spec_of(film, tmp_path / "o.mp4", **(options | {"size_bytes": 120_001})))
        again = transcode(spec)
        assert again.resumed is not None
        assert again.proof.output_sha256 == whole.proof.output_sha256
        assert again.rate == whole.rate


def test_a_peak_holds_in_the_joined_film(film: Path, tmp_path: Path) -> None:
    """The leaky bucket is kept with CRFs too, in SVT-AV1 as well, which has no peak with a bitrate of its own."""
    for codec in ("h264", "av1"):
        report = made(
            film,
            tmp_path / "o.mkv",
            codec=codec,
            bitrate_bps=80_000,
            maxrate_bps=120_000,
            bufsize_bits=120_000,
            overwrite=True,
        )
        assert report.rate is not None
        assert report.rate.reached_bps <= 80_000
        assert "rate-exceeded" not in {warning.code for warning in report.warnings} or codec == "av1"


def test_what_cannot_be_reached_is_said(film: Path, tmp_path: Path) -> None:
    """A rate below the encoder's last CRF is a warning."""
    report = made(film, tmp_path / "o.mp4", bitrate_bps=1_000)
    assert "rate-missed" in {warning.code for warning in report.warnings}


@pytest.mark.parametrize(
    ("size_bytes", "options", "says"),
    [(9_000, {"audio": "none"}, "does not fit into 9000 bytes"), (20_000, {}, "sound, subtitles and container take")],
)
def test_a_size_that_nothing_fits_into_leaves_no_work(
    size_bytes: int, options: dict[str, object], says: str, film: Path, tmp_path: Path
) -> None:
    """The finished segments would help no other run: with the same size it fails again, and another size is refused."""
    with pytest.raises(SizeExceeded, match=says):
        made(film, tmp_path / "small.mp4", size_bytes=size_bytes, **options)
    assert not list(tmp_path.iterdir())


def test_contradictions_are_refused(film: Path) -> None:
    """A size excludes a rate and NVENC, and a plan shows the goal."""
    with pytest.raises((UsageError, ValueError), match="exclude each other"):
        spec_of(film, "o.mp4", size_bytes=10_000, bitrate_bps=10_000)
    with pytest.raises(Unsupported, match="NVENC cannot encode for a size"):
        plan_transcode(spec_of(film, "o.mp4", size_bytes=10_000, encoder="nvenc"))
    plan = planned(film, bitrate_bps=80_000, segment_s=Fraction(1))
    assert plan.to_json()["rate"]["bitrate_bps"] == 80_000
    assert any(line.startswith("rate: 80000 bit/s on average") for line in plan.lines())
