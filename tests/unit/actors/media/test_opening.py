"""FFmpeg gets a source as an open file, and cannot open another file."""

import os
import stat
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.actors.limits import InputLimits
from codecfleet.actors.media.opening import FORMATS, open_source
from codecfleet.errors import InputUnreadable
from codecfleet.testing.clips import Clip, constant_times, make_clip

OPENS_OTHERS = frozenset(
    {
        *("concat", "hls", "applehttp", "dash", "webm_dash_manifest", "imf", "sdp", "rtsp", "rtp"),
        *("image2", "image2pipe", "lavfi", "vapoursynth", "tty", "ffmetadata"),
    }
)
"""Demuxers that read scripts, open other files or addresses, or run filters that users wrote."""


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A film of one second."""
    return make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(25)))


def test_ffmpeg_is_given_no_name(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg gets a local film as an open file, with no protocol, no references and no way to open another file."""
    seen: list[tuple[Any, dict[str, Any]]] = []
    opened = av.open

    def noted(file: object, *rest: object, **given: Any) -> object:
        seen.append((file, given))
        return opened(file, *rest, **given)  # type: ignore[call-overload]

    monkeypatch.setattr(av, "open", noted)
    with open_source(str(clip)) as container:
        assert container.streams.video
    ((file, given),) = seen
    assert not isinstance(file, (str, os.PathLike))
    assert given["options"] == {
        "format_whitelist": FORMATS,
        "protocol_whitelist": "none",
        "enable_drefs": "0",
        "use_absolute_path": "0",
        **InputLimits().options,
    }
    with pytest.raises(PermissionError, match="/etc/passwd"):
        given["io_open"]("file:/etc/passwd", 1, {})


def test_no_demuxer_that_opens_others_is_allowed() -> None:
    """Every allowed demuxer exists and reads one file; none reads files that name other files."""
    allowed = set(FORMATS.split(","))
    assert not allowed & OPENS_OTHERS
    known = {name for each in av.formats_available for name in each.split(",")}
    assert allowed <= known


def test_a_closed_film_leaves_no_descriptor(clip: Path) -> None:
    """No file stays open after a film is opened and closed, or fails to open."""
    junk = clip.with_name("junk.mp4")
    junk.write_bytes(b"\0" * 4096)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with open_source(str(clip)):
            pass
        with pytest.raises(InputUnreadable), open_source(str(junk)):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_disk_that_cannot_be_read_is_no_damage() -> None:
    """A read error is reported, and not taken for the end of the film."""
    unreadable = Path("/proc/self/mem")  # a regular file whose first bytes cannot be read
    if not unreadable.exists() or not stat.S_ISREG(unreadable.stat().st_mode):
        pytest.skip("there is no /proc/self/mem")
    with pytest.raises(InputUnreadable, match=r"cannot be read: [Ii]nput/output error"), open_source(str(unreadable)):
        pass
