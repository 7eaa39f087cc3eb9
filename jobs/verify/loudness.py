"""Whether an encoded track is as loud as the job's report says."""

from math import isfinite

import av.error
import av.filter
from av.audio.frame import AudioFrame

from .sound_tracks import SoundTrack, decoded_sound
from .verdict import Check, check, not_applicable

ALLOWED_LU = 1
"""EBU R 128's wider tolerance: FFmpeg's AAC moves the loudness of one channel at 80 kbit/s by up to 0.6 LU."""


def check_loudness(name: str, track: SoundTrack, wanted_lufs: float | None) -> Check:
    """Check the whole track of the output; ``wanted_lufs`` is None where nothing in it could be measured."""
    if wanted_lufs is None:
        return not_applicable(f"{name}.loudness", "nothing in it is loud enough to be measured")
    found = integrated_lufs(track.url, track.number)
    said = "silence" if found is None else f"{found:.1f} LUFS"
    passed = found is not None and abs(found - wanted_lufs) <= ALLOWED_LU
    return check(f"{name}.loudness", f"{wanted_lufs:.1f} LUFS within {ALLOWED_LU} LU", said, passed=passed)


def integrated_lufs(url: str, number: int) -> float | None:
    """Return the integrated loudness of a file's audio track (ITU-R BS.1770), None for silence."""
    graph: av.filter.Graph | None = None
    found = float("nan")
    for frame in decoded_sound(url, number):
        if graph is None:
            graph = _meter(frame)
        try:
            graph.push(frame)
            while True:
                found = float(graph.pull().metadata["lavfi.r128.I"])
        except (av.error.BlockingIOError, av.error.EOFError):
            continue
    # BS.1770's absolute gate.
    return found if isfinite(found) and found > -70 else None  # noqa: PLR2004


def _meter(frame: AudioFrame) -> av.filter.Graph:
    graph = av.filter.Graph()
    source = {
        "sample_rate": str(frame.sample_rate),
        "sample_fmt": frame.format.name,
        "channel_layout": frame.layout.name,
        "time_base": f"1/{frame.sample_rate}",
    }
    meter = graph.add("ebur128", metadata="1", framelog="quiet")
    graph.link_nodes(graph.add("abuffer", **source), meter, graph.add("abuffersink")).configure()
    return graph
