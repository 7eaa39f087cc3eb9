"""Films that name other files (scripts, playlists, containers with references) open none of them."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from .attacks import Attack, alias, attack, box, clip, matroska, put, trap, with_box

__all__ = ["attack", "clip", "matroska", "trap"]


pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def bell() -> Iterator[socket.socket]:
    """A listening socket that must get no connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


SCRIPTS = {
    "m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n",
    "m3u8 with a mark": "\ufeff#EXTM3U\n#EXTINF:1,\n{}\n",
    "ffconcat": "ffconcat version 1.0\nfile '{}'\n",
    "concat": "file '{}'\n",
    "mpd": "<?xml version='1.0'?><MPD><BaseURL>{}</BaseURL></MPD>",
    "mpd in small letters": "<mpd><BaseURL>{}</BaseURL></mpd>",
    "xspf": "<?xml version='1.0'?><playlist><trackList><track><location>{}</location></track></trackList></playlist>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns={}\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
    "pls": "[playlist]\nFile1={}\n",
    "asx": "<ASX version='3.0'><entry><ref href='{}'/></entry></ASX>",
    "rtsp": "RTSPtext\n{}\n",
}


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.parametrize("suffix", [".mp4", ".m3u8"])
def test_scripts_and_playlists_are_refused(
    case: str, suffix: str, attack: Attack, trap: Path, bell: socket.socket
) -> None:
    """Under any name, a text that names other files is refused, and none of them is opened."""
    for target in (str(trap), f"http://127.0.0.1:{bell.getsockname()[1]}/x.mp4"):
        source = put(attack.folder / f"script{suffix}", SCRIPTS[case].format(target))
        attack.source_refused(3, "names other files", "Name the media file itself", source=source)


DATA_REFERENCE = [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"]


@pytest.mark.parametrize("kind", [b"url ", b"urn ", b"alis", b"rsrc"])
def test_tracks_that_lie_in_another_file(kind: bytes, attack: Attack, clip: Path, trap: Path) -> None:
    """A data reference to another file is not followed; only what the file itself holds is read."""
    record = alias(trap) if kind == b"alis" else f"file://{trap}\0".encode()
    entry = struct.pack(">II", 0, 1) + box(kind, b"\0\0\0\0" + record)
    source = put(attack.folder / "refers.mov", with_box(clip.read_bytes(), DATA_REFERENCE, entry))
    if kind == b"alis":
        attack.source_refused(3, "refers to another file", source=source)
    else:
        attack.transcodes(source)
