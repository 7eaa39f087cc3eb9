"""The command ``stills``: what its options mean, and what it prints."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from codecfleet.actors.stills.look import StillFormat
from codecfleet.cli.app import parse
from codecfleet.cli.services import Answer, Services
from codecfleet.errors import UsageError
from codecfleet.jobs.stills.spec import StillsSpec


@dataclass
class Asked:
    """Takes no stills, and notes what was asked for."""

    requests: list[tuple[StillsSpec, str | None]] = field(default_factory=list)

    def __call__(self, spec: StillsSpec, address: str | None, progress: Callable[[int], None]) -> Answer:
        """Answer at once."""
        progress(12)
        self.requests.append((spec, address))
        return Answer(["5 stills"], {"stills": 5})


def _run(*arguments: str) -> tuple[StillsSpec, str | None, str]:
    """Run a command line; return what was asked for, where, and what it printed."""
    asked, out = Asked(), io.StringIO()
    request = parse(["stills", "film.mkv", "thumbs", *arguments])
    assert not isinstance(request, int)
    assert request.run(Services(stills=asked), out, io.StringIO()) == 0
    ((spec, address),) = asked.requests
    return spec, address, out.getvalue()


def test_a_time_is_enough() -> None:
    """Without more options stills are JPEG files as a player shows the film, taken wherever there are workers."""
    spec, address, printed = _run("--every", "10s")
    assert spec == StillsSpec(source="film.mkv", output="thumbs", every_s=Fraction(10))
    assert (spec.format, address, printed) == (StillFormat.JPG, None, "5 stills\n")


def test_every_option_arrives() -> None:
    """Each option is in the spec, exactly."""
    spec, address, printed = _run(
        *("--scene", "--scene-threshold", "7", "--scene-seconds", "1.5", "--scale", "180p", "--format", "webp"),
        *("--quality", "70", "--sheet", "10x8", "--start", "1:30", "--end", "1:40.5", "--video-track", "1"),
        *("--workers", "3", "--device", "cpu", "--priority", "5", "--overwrite", "--address", "head:6379", "--json"),
    )
    assert (spec.scene, spec.scene_threshold, spec.scene_shortest_s) == (True, 7, Fraction(3, 2))
    assert (spec.scale, spec.format, spec.quality, spec.sheet) == ((None, 180), StillFormat.WEBP, 70, (10, 8))
    assert (spec.start_s, spec.end_s, spec.video_track) == (90, Fraction(201, 2), 1)
    assert (spec.workers, spec.device, spec.priority, spec.overwrite) == (3, "cpu", 5, True)
    assert (address, json.loads(printed)) == ("head:6379", {"stills": 5})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "exactly one of --every, --count and --scene"),
        (["--every", "1", "--count", "2"], "exactly one of --every, --count and --scene"),
        (["--every", "soon"], "--every 'soon' is not a time"),
        (["--count", "2", "--sheet", "10"], "--sheet '10' is not a grid"),
        (["--count", "2", "--sheet", "1001x1"], "--sheet '1001x1' is out of range"),
        (["--count", "2", "--width", "9", "--scale", "9p"], "--width and --scale exclude each other"),
        (["--count", "2", "--format", "png", "--quality", "9"], "--quality is for jpg and webp"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_flag(options: list[str], problem: str) -> None:
    """One line with the flag as it is typed."""
    with pytest.raises(UsageError, match=problem):
        parse(["stills", "film.mkv", "thumbs", *options])
