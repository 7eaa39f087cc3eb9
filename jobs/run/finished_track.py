"""A track that was encoded and joined: what the job's report is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...actors.tracks.loudness import Loudness
from ..board.events import Run
from ..join.spool import SpooledSegment
from ..join.video_track import JoinedTrack
from ..report.report import Warning_


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTrack:
    """A track that is written: where, of which segments and runs, and what the user should know.

    ``restored`` are the segments that an earlier run of the job encoded.
    """

    path: Path
    joined: JoinedTrack
    segments: tuple[SpooledSegment, ...]
    restored: frozenset[int]
    runs: tuple[Run, ...]
    warnings: tuple[Warning_, ...]
    loudness: Mapping[int, Loudness]
    """What was done to encoded sound, by the source's stream index."""
