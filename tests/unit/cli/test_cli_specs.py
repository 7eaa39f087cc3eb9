"""Specs as jobs of a queue: the command line of a spec makes the same spec, or the spec is refused."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet import BatchSpec, Fleet, LadderSpec, Queue, StillsSpec, TranscodeSpec, UsageError
from codecfleet.cli.app import parse
from codecfleet.cli.question import Question
from codecfleet.cli.services import Services
from codecfleet.cluster.queue.background import driver_lock
from codecfleet.jobs.request.options import options_of
from codecfleet.jobs.request.parts import JobRequest

FIRST: dict[str, Any] = {
    "codec": "h265",
    "quality": 26,
    "maxrate_bps": "6M",
    "bufsize_bits": "8M",
    "keyframe_interval_s": Fraction(1001, 500),
    "preset": 6,
    "encoder_options": (("tune", "film"), ("x265-params", "a=b:c='d e'")),
    "start_s": Fraction(1001 * 7, 30000),
    "end_s": "1:30",
    "video_track": 1,
    "crop": (1920, 800, 0, 140),
    "rotate": 90,
    "flip": "h",
    "pad": Fraction(16, 9),
    "overlay": Path("a logo.png"),
    "overlay_at": (20, 30),
    "overlay_opacity": 50,
    "burn_subtitles": "eng",
    "subtitle_font": "a.ttf",
    "scale": (None, 720),
    "tonemap": "hable",
    "pix_fmt": "yuv420p10le",
    "denoise": "light",
    "deinterlace": "auto",
    "fps": Fraction(30000, 1001),
    "audio_tracks": (2, 0),
    "audio": "aac",
    "audio_bitrate_bps": 128_000,
    "audio_channels": "mono",
    "loudness_lufs": Fraction(-33, 2),
    "subtitles": "none",
    "segment_s": Fraction(1, 3),
    "workers": 3,
    "wait_s": 0,
    "deadline_s": "2.5",
    "deadline_factor": 5,
    "second_runs": 0,
    "ship": True,
    "priority": 0,
    "weight": 2,
    "finish_within_s": 900,
    "device": "auto",
    "encoder": "software",
    "keep_evidence": "kept",
    "work": "work",
    "no_journal": True,
    "restart": True,
    "fragmented": True,
    "overwrite": True,
    "if_smaller": True,
    "strict": True,
    "force": True,
}
SECOND: dict[str, Any] = {
    "codec": None,
    "bitrate_bps": 800_000,
    "encoder_options": (),
    "crop": "auto",
    "pad": (1920, 1080),
    "overlay_at": "center",
    "burn_subtitles": 3,
    "scale": (1280, 720),
    "overwrite": False,
}
THIRD: dict[str, Any] = {"target_quality": "ssim:0.98:p5:crf16-40"}
FOURTH: dict[str, Any] = {"size_bytes": 700_000_000}
BATCH = {
    "output_template": "{stem}.mp4",
    "files_at_once": 3,
    "mirror": True,
    "retry_failed": True,
    "hash_inputs": True,
    "database": "d b.sqlite",
}
STILLS = {"source": "-a.mkv", "output": "stills", "format": "webp", "quality": 80, "sheet": "10x8", "width": 320}
SPECS: list[JobRequest] = [
    TranscodeSpec(source="-a film.mkv", output="b\udcff.mp4", **FIRST),
    TranscodeSpec(source="s3://films/a.mkv", output="-", **SECOND),
    TranscodeSpec(source="a.mkv", output="b.mkv", **THIRD).resolved(),
    TranscodeSpec(source="a.mkv", output="b.mkv", **FOURTH),
    BatchSpec(inputs=("films", "-", "--mirror"), output="small", **FIRST, **BATCH),
    LadderSpec(
        source="a.mkv", output="b", preset="cmaf-av1-hevc-h264", packaged_s="4", layout="files", audio="opus", fps=25
    ),
    LadderSpec(source="a.mkv", output="b", per_title="vmaf:94", thumbnails_s="1/3"),
    StillsSpec(**STILLS, every_s="1/3"),
    StillsSpec(source="a.mkv", output="b", scene=True, scene_threshold=20, scene_shortest_s=1, scale="180p"),
    StillsSpec(source="a.mkv", output="b", count=9),
]


def spec_of(arguments: tuple[str, ...]) -> JobRequest:
    """Return the spec that the command line makes."""
    request = parse(arguments)
    if not isinstance(request, Question):
        found = getattr(request, "spec", None)
        assert isinstance(found, JobRequest)
        return found
    asked: list[JobRequest] = []
    request.ask(Services(**dict.fromkeys(("ladder", "stills"), lambda spec, *_: asked.append(spec))), lambda _: None)
    return asked[0]


def test_the_specs_here_set_every_option() -> None:
    """A new option needs a value here, which shows that the command line can express it."""
    assert {*FIRST, *SECOND, *THIRD, *FOURTH, "source", "output"} == set(options_of(TranscodeSpec))
    assert {*FIRST, *SECOND, *THIRD, *FOURTH, *BATCH, "inputs", "output"} == set(options_of(BatchSpec))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("preset", ["", "phone", "7"])
def test_the_command_line_of_a_spec_makes_the_same_spec(
    spec: JobRequest, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preset of the driver's configuration changes nothing. Names that look like options remain names."""
    monkeypatch.setenv("CODECFLEET_PRESET", preset)
    made = spec_of(spec.command_line())
    renamed: dict[str, Any] = {"inputs": ("films", "-", "./--mirror")} if isinstance(spec, BatchSpec) else {}
    if (source := getattr(spec, "source", "")).startswith("-"):
        renamed = {"source": f"./{source}"}
    assert made == spec.model_copy(update=renamed)


@given(start=st.fractions(0, 36_000, max_denominator=10**9), length=st.fractions(1, 100, max_denominator=1001))
def test_every_time_is_exact(start: Fraction, length: Fraction) -> None:
    """A time that is no decimal number, such as that of a picture at 29.97 a second, keeps its value."""
    spec = TranscodeSpec(source="a.mkv", output="b.mp4", start_s=start, end_s=start + length)
    assert spec_of(spec.command_line()) == spec


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"bitrate_bps": 999}, "--bitrate '999' is out of range"),
        ({"audio": "aac", "loudness_lufs": Fraction(-49, 3)}, "--loudness '-16.3"),
        ({"encoder_options": (("a b", "c"),)}, "--encoder-option 'a b=c'"),
        ({"audio_tracks": (1, 1)}, "--audio-track '1' is given twice"),
        ({"audio_tracks": ()}, "--audio-track"),
        ({"work": "-w"}, "--work '-w'"),
        ({"start_s": Fraction(1, 10**19)}, "--start"),
        ({"output": "a\0b"}, "OUTPUT"),
        ({"output": " "}, "OUTPUT"),
    ],
)
async def test_a_spec_that_the_command_refuses_is_not_queued(
    options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """The error names the option as the command does."""
    spec = TranscodeSpec.model_validate({"source": "a.mkv", "output": "b.mp4"} | options)
    async with Queue(tmp_path / "queue.sqlite", starts_driver=False) as queue:
        with pytest.raises(UsageError) as caught:
            await queue.submit(spec)
        assert caught.value.message.startswith(named)
        assert await queue.list() == ()


@pytest.mark.parametrize("job", [TranscodeSpec(source="s3://k:secret@b/a.mkv", output="b"), ["probe", "s3://k:s@b/a"]])
async def test_a_database_takes_no_secret(job: TranscodeSpec | list[str], tmp_path: Path) -> None:
    """Others may read a database. A file belongs to the user, and takes the same job."""
    with pytest.raises(UsageError, match="password"):
        await Queue("postgresql://nowhere/queue").submit(job)
    async with Queue(tmp_path / "queue.sqlite", starts_driver=False) as queue:
        assert (await queue.submit(job)).command.arguments[1].startswith("s3://k:s")


async def test_a_fleet_submits_to_the_configurations_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job runs on a fleet of the same address and size, with the configuration's token. A caller names another."""
    place, other = tmp_path / "queue.sqlite", tmp_path / "other.sqlite"
    async with Queue(place) as queue:
        (tmp_path / "films.token").write_text(await queue.make_token("films"))
    monkeypatch.setenv("CODECFLEET_QUEUE", str(place))
    monkeypatch.setenv("CODECFLEET_QUEUE_TOKEN", str(tmp_path / "films.token"))
    spec = StillsSpec(source="a.mkv", output="b", count=9)
    with driver_lock(place), driver_lock(other):  # so that no driver starts
        job = await Fleet("head:6379", workers=3).submit(spec, priority=2, due_in_s=60)
        assert (await Fleet().submit(spec, queue=other, job_id="a", tenant="t")).tenant == "t"
    assert (job.tenant, job.priority, job.due_s is not None) == ("films", 2, True)
    assert job.command.arguments == ("stills", "a.mkv", "b", "--count=9", "--workers=3", "--address=head:6379")
    async with Queue(place) as queue:
        assert [each.job_id for each in await queue.list()] == [job.job_id]
