"""The command ``infer``: its options, and what it refuses."""

from fractions import Fraction

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Answer, Services
from codecfleet.jobs.infer.spec import InferSpec

BASE = ["infer", "film.mkv", "--loadable", "net.dla", "--output", "out.npz"]


def asked_for(*options: str) -> tuple[InferSpec, str | None]:
    """Return the spec and the cluster's address that a command line gives."""
    asked: list[tuple[InferSpec, str | None]] = []

    def infer(spec: InferSpec, address: str | None, _progress: object) -> Answer:
        asked.append((spec, address))
        return Answer([], {})

    assert run([*BASE, *options], Services(infer=infer)) == 0
    return asked[0]


def test_every_option_arrives() -> None:
    """Each option is in the spec, exactly."""
    spec, _ = asked_for(
        *("--mean", "123.7,116.3,103.5", "--scale", "0.017", "--channels", "bgr", "--dla", "2", "--dla", "0"),
        *("--tasks-at-once", "8", "--task-seconds", "2.5", "--workers", "3", "--segment-seconds", "5"),
        *("--start", "1:30", "--end", "1:40.5", "--video-track", "1", "--overwrite"),
    )
    assert (spec.mean, spec.scale, spec.channels) == ((123.7, 116.3, 103.5), (0.017,), "bgr")
    assert (spec.devices, spec.tasks_at_once, spec.task_limit_s, spec.workers) == ((2, 0), 8, 2.5, 3)
    assert (spec.segment_s, spec.start_s, spec.end_s) == (Fraction(5), Fraction(90), Fraction(201, 2))
    assert (spec.video_track, spec.overwrite) == (1, True)


def test_the_cluster_is_the_one_asked_for() -> None:
    """A given address is used, otherwise the environment's, otherwise this machine."""
    assert asked_for("--address", "head:6379")[1] == "head:6379"
    assert asked_for() == (InferSpec(source="film.mkv", loadable="net.dla", output="out.npz"), None)


@pytest.mark.parametrize(
    "options",
    [
        ["--mean", "1,2"],
        ["--mean", "nan"],
        ["--scale", "1e3"],
        ["--scale", ""],
        ["--dla", "-1"],
        ["--dla", "0", "--dla", "0"],
        ["--tasks-at-once", "65"],
        ["--output", "out.npy"],
    ],
)
def test_nonsense_is_a_usage_error(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nonsense gives one line on stderr and exit code 2."""
    assert run([*BASE, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_off_tegra_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A machine without a DLA gives exit code 4 before the input is read."""
    assert run(["infer", "/nowhere.mkv", "--loadable", "net.dla", "--output", "out.npz"]) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "DLA" in told.err
