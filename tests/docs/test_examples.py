"""The examples, run as their own first lines say."""

import runpy
import sys
import warnings
from pathlib import Path

import av
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ARGUMENTS = {
    "dla_session.py": [],
    "encoder_options.py": ["film.mkv", "film.mp4"],
    "frames.py": ["film.mkv", "film.mp4"],
    "live.py": ["film.mkv", "received.h264"],
    "many_files.py": ["inbox", "outbox"],
    "progress.py": ["film.mkv", "film.mp4"],
    "ray_data.py": ["film.mkv", "--part-seconds", "1"],
    "ray_job.py": ["film.mkv", "film.mp4", "--workers", "2"],
    "ray_train.py": ["film.mkv", "--workers", "1"],
    "torch_loader.py": ["film.mkv", "inbox/one.mkv"],
}
MADE = {
    "dla_session.py": [],
    "live.py": ["received.h264"],
    "many_files.py": ["outbox/one.mp4", "outbox/two.mp4", "outbox/three.mp4"],
    "ray_data.py": [],
    "ray_train.py": [],
    "torch_loader.py": [],
}
NEEDS = {
    "ray_data.py": ["pyarrow", "pandas"],
    "ray_train.py": ["torch", "pyarrow", "pandas"],
    "torch_loader.py": ["torch"],
}
"""Packages that no lock has: `make learning` installs them."""


def run(name: str) -> object:
    """Run an example; return its exit code, None if it sets none."""
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    except SystemExit as ending:
        return ending.code
    return None


@pytest.mark.ray
@pytest.mark.usefixtures("private_ray")
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_does_what_it_says(name: str, films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example ends well and leaves the files it was asked for."""
    for package in NEEDS.get(name, []):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS[name]])
    with warnings.catch_warnings():
        if name in NEEDS:
            warnings.simplefilter("ignore")  # the packages' own
        assert run(name) in (None, 0)
    for made in MADE.get(name, ["film.mp4"]):
        assert (films / made).stat().st_size


@pytest.mark.usefixtures("films")
def test_live_lowers_its_bitrate_and_loses_no_frame(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """live.py: a receiver that is too slow has the sender lower its rate, and gets every frame."""
    monkeypatch.setattr(sys, "argv", ["live.py", "film.mkv", "received.h264"])
    assert run("live.py") is None
    told = capsys.readouterr().out
    with av.open("film.mkv") as film, av.open("received.h264") as received:
        frames = sum(1 for _ in film.decode(video=0))
        assert sum(1 for _ in received.decode(video=0)) == frames
    assert f"received {frames} frames" in told
    assert "2000000 -> 1000000 bit/s" in told


@pytest.mark.ray
@pytest.mark.usefixtures("private_ray")
def test_a_film_that_fails_stops_no_other(
    films: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """many_files.py names the film that cannot be read, converts the others, and ends with exit code 1."""
    (films / "inbox" / "broken.mkv").write_bytes(b"no film at all" * 100)
    monkeypatch.setattr(sys, "argv", ["many_files.py", "inbox", "outbox"])
    assert run("many_files.py") == 1
    assert "broken.mkv" in capsys.readouterr().out
    assert len(list((films / "outbox").iterdir())) == 3
