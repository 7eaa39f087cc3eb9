"""Impossible outputs and options: each is refused with one error, and nothing is harmed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from .attacks import ERROR, LIMIT_S, Attack, attack, clip, matroska, put, tiny

__all__ = ["attack", "clip", "matroska", "tiny"]


pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("alias", ["itself", "symlink", "hardlink", "url", "detour", "memory"])
def test_an_output_that_is_the_input(alias: str, attack: Attack, clip: Path) -> None:
    """A film is never overwritten by its own transcode, however its name is spelt, even with --overwrite."""
    source = attack.folder / "film.mp4"
    shutil.copy(clip, source)
    (attack.folder / "symlink.mp4").symlink_to(source)
    (attack.folder / "hardlink.mp4").hardlink_to(source)
    fsspec.filesystem("memory").pipe("/films/film.mp4", clip.read_bytes())
    first, second = {
        "itself": (source, source),
        "symlink": (source, attack.folder / "symlink.mp4"),
        "hardlink": (source, attack.folder / "hardlink.mp4"),
        "url": (f"file://{source}", source),
        "detour": (source, attack.folder / "out" / ".." / "film.mp4"),
        "memory": ("memory://films/film.mp4", "memory:///films/film.mp4"),
    }[alias]
    attack.refused(2, "output and input are the same", arguments=["transcode", first, second, "--overwrite"])
    assert source.read_bytes() == clip.read_bytes()


def test_outputs_that_cannot_be(attack: Attack, clip: Path) -> None:
    """A folder, a missing folder, a pipe, and a name that is taken, too long or without a container: exit code 4."""
    out = attack.out
    (out / "folder.mp4").mkdir()
    (out / "nowhere.mp4").symlink_to("nothing.mp4")
    put(out / "taken.mp4", b"x")
    os.mkfifo(out / "pipe.mp4")
    for name, words, *options in (
        ("folder.mp4", "is a folder", "--overwrite"),
        ("missing/o.mp4", "there is no folder"),
        ("taken.mp4/o.mp4", "there is no folder"),
        ("taken.mp4", "exists already"),
        ("nowhere.mp4", "exists already"),
        ("pipe.mp4", "is a pipe", "--overwrite"),
        ("a" * 300 + ".mp4", "name too long"),
        ("o", "no extension"),
        ("o.xyz", "unknown container .xyz"),
        ("o.webm", ".webm cannot hold h264", "--codec", "h264"),
    ):
        attack.refused(4, words, arguments=["transcode", clip, out / name, *options])
    attack.transcodes(clip, out / "taken.mp4", "--overwrite", "--report", str(out / "taken.mp4.json"))


PROGRAM = """
import sys
from codecfleet import Fleet
from codecfleet.actors.media import opening
from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.testing import LocalPool
for source, output in zip(sys.argv[1::2], sys.argv[2::2]):
    code = run(["transcode", source, output], Services(open_fleet=lambda *_: Fleet(pool=LocalPool(slots=2))))
    print(code, file=sys.stderr, flush=True)
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read and write everything")
def test_files_that_may_not_be_touched(tmp_path: Path, clip: Path) -> None:
    """Without permission to read the exit code is 3, without permission to write 4."""
    secret, closed, readonly = tmp_path / "secret.mp4", tmp_path / "closed", tmp_path / "readonly"
    shutil.copy(clip, secret)
    secret.chmod(0)
    closed.mkdir(mode=0)
    readonly.mkdir(mode=0o500)
    # Root keeps its name, but loses its privileges.
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    cases = (
        (secret, tmp_path / "o.mp4", 3, "Permission denied"),
        (closed / "x.mp4", tmp_path / "o.mp4", 3, "Permission denied"),
        (clip, readonly / "o.mp4", 4, "is read-only"),
        (clip, closed / "o.mp4", 4, "Permission denied"),
    )
    asked = [str(path) for source, output, _, _ in cases for path in (source, output)]
    command = [*plain, sys.executable, "-c", PROGRAM, *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(cases)
    for (_, _, code, words), line, found in zip(cases, lines[::2], lines[1::2], strict=True):
        assert int(found) == code
        assert line.startswith(ERROR)
        assert words in line
    closed.chmod(0o700)
    assert {path.name for path in tmp_path.rglob("*")} == {"secret.mp4", "closed", "readonly"}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        *((f"--segment-seconds {value}", 2, "--segment-seconds") for value in ("nan", "0", "-1", "1000000000")),
        ("--quality 63", 2, "0 to 51"),
        ("--bitrate 4M --maxrate 1M --bufsize 1M", 2, "below the average"),
        ("--start 100", 2, "is after the end"),
        ("--start 0.99", 2, "no picture"),
        ("--start 0.01 --end 0.02", 2, "no picture"),
        ("--video-track -1", 2, "--video-track"),
        ("--video-track 7", 4, "no video track 7"),
        ("--audio-track 99", 4, "no audio track 99"),
        ("--scale 1x1", 4, "1x1"),
        ("--scale 65536x65536", 4, "65536x65536"),
        ("--pix-fmt nope", 4, "no pixel format 'nope'"),
        ("--pix-fmt rgb24", 4, "rgb24"),
        ("--pix-fmt cuda", 4, "cuda"),
        ("--device gpu", 4, "no GPU"),
        ("--spec /nowhere.toml", 2, "/nowhere.toml"),
        ("--encoder-option nope=1", 4, "nope"),
        ("--encoder-option x264-params=keynt=5", 4, "keynt"),
        ("--encoder-option x264-params=ref=abc", 4, "ref"),
        ("--encoder-option x264-params=stats=stolen:pass=1", 4, "stats"),
        ("--encoder-option x264-params=qpfile=/etc/passwd", 4, "qpfile"),
        ("--encoder-option passlogfile=stolen", 4, "passlogfile"),
        ("--codec hevc --encoder-option x265-params=csv=stolen", 4, "csv"),
        ("--codec hevc --encoder-option x265-params=nosuch=7", 4, "nosuch"),
        ("--codec av1 --encoder-option svtav1-params=nosuch=7", 4, "nosuch"),
        ("--codec av1 --encoder-option svtav1-params=stat-file=stolen", 4, "stat-file"),
        ("--codec vp9 --encoder-option deadline=abc", 4, "deadline"),
    ],
)
def test_options_that_make_no_sense(options: str, code: int, words: str, attack: Attack, clip: Path) -> None:
    """Options that the film or encoder cannot take are refused by name, and none makes an encoder open a file."""
    attack.source_refused(code, words, source=clip, options=tuple(options.split()))


@pytest.mark.parametrize(
    "options", ["--segment-seconds 0.001", "--segment-seconds 0.000000000000000001", "--segment-seconds 30000000"]
)
@pytest.mark.parametrize("container", ["clip", "matroska"])
def test_extreme_options_that_do_make_sense(
    options: str, container: str, attack: Attack, request: pytest.FixtureRequest
) -> None:
    """Segments shorter than a frame or longer than a year become what can be cut."""
    attack.transcodes(request.getfixturevalue(container), None, *options.split())


def test_a_thousand_workers(attack: Attack, clip: Path) -> None:
    """More workers than work are allowed."""
    attack.transcodes(clip, None, "--workers", "1000")
