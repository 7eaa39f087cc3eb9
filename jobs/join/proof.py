"""Proves, before and after the join, that the joined file shows exactly the pictures taken from the source."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av.error

from ...actors.decode.picture_hash import PictureHash
from ...actors.limits import NO_LIMITS
from ...actors.media.location import is_local, local_path
from ...actors.media.opening import open_source
from ...actors.media.stores import open_store
from ...actors.segment.encoding import EncodedSegment
from ...errors import InputError, ProofFailed
from ..board.board import seams_agree
from ..board.events import Run
from ..carry.containers import Container
from ..report.report import Proof
from .spool import SpooledSegment
from .video_track import JoinedTrack

_REPORT_IT = "Nothing was published. Please report this error together with the input and the options."


def check_manifest(segments: Sequence[SpooledSegment], runs: Sequence[Run], planned: int) -> None:
    """Check the counts of each segment, and that the segments cover the plan. Call this before the file is closed.

    Raises ProofFailed: a segment is missing, appears twice, contradicts itself, or overlaps another in time.
    """
    covered = [number for run in runs for number in range(run.segment, run.until + 1)]
    if covered != list(range(planned)):
        message = f"{len(covered)} of {planned} planned segments were joined, or they were joined out of order"
        raise ProofFailed(message, _REPORT_IT)
    for segment in segments:
        if wrong := miscounted(segment.facts, segment.payload_bytes):
            raise ProofFailed(wrong, _REPORT_IT)
    held = [s.facts for s in segments if s.facts.tally.first_ticks is not None]
    for left, right in pairwise(held):
        if (left.tally.last_ticks or 0) >= (right.tally.first_ticks or 0):
            message = f"segments {left.segment} and {right.segment} overlap at tick {right.tally.first_ticks}"
            raise ProofFailed(message, _REPORT_IT)


def miscounted(segment: EncodedSegment, payload_bytes: int) -> str:
    """Return how a segment's result contradicts itself; "" if there is no contradiction."""
    due = segment.tally.frames if segment.frames_due is None else segment.frames_due
    given, stated_bytes = segment.frames_out, int(segment.sizes_bytes.sum())
    if due != given:
        return f"segment {segment.segment} took {due} frames and gave {given}"
    if stated_bytes != payload_bytes:
        return f"segment {segment.segment} has {payload_bytes} bytes, but its packets have {stated_bytes}"
    return ""


def prove(
    path: Path,
    container: Container,
    segments: Sequence[SpooledSegment],
    joined: JoinedTrack,
    frames_due: int | None = None,
) -> Proof:
    """Read the joined file back and compare it with the manifest. Raises ProofFailed: the file differs.

    ``frames_due`` is how many pictures an output with its own frame rate must show; None means as many as were taken.
    """
    taken = sum(segment.facts.tally.frames for segment in segments)
    given = sum(segment.facts.frames_out for segment in segments)
    expected = sorted(joined.pts)
    count, times_equal = _shown(path, container, expected, joined.tick)
    due = taken if frames_due is None else frames_due
    if not due == given == count:
        raise ProofFailed(f"{due} frames were due, {given} encoded, and the joined file shows {count}", _REPORT_IT)
    if not times_equal:
        raise ProofFailed("the joined file shows its pictures at other times than the source", _REPORT_IT)
    seams = [seams_agree(a.facts.tally.seam_after, b.facts.tally.seam_before) for a, b in pairwise(segments)]
    if not all(seams):
        raise ProofFailed(f"the pictures on both sides of {seams.count(False)} cuts differ", _REPORT_IT)
    return Proof(
        frames_in=taken,
        frames_due=frames_due,
        frames_out=given,
        first_pts_s=str(expected[0] * joined.tick),
        last_pts_s=str(expected[-1] * joined.tick),
        seams=len(seams),
        seams_equal=sum(seams),
        output_frames=count,
        times_equal=times_equal,
        output_sha256=file_sha256(path),
        seam_before=_digest(segments[0].facts.tally.seam_before),
        seam_after=_digest(segments[-1].facts.tally.seam_after),
    )


def _digest(pictures: Sequence[PictureHash]) -> str:
    return pictures[0].digest.hex() if pictures else ""


def shown_frames(path: Path, container: Container, joined: JoinedTrack, taken: int) -> int:
    """Read a file back, and return how many pictures it shows. Raises ProofFailed: their number or times are wrong."""
    count, times_equal = _shown(path, container, sorted(joined.pts), joined.tick)
    if not (taken == count and times_equal):
        message = f"{taken} frames were given, but the file shows {count}{'' if times_equal else ' at other times'}"
        raise ProofFailed(message, _REPORT_IT)
    return count


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def has_content(place: str, size_bytes: int, sha256: str) -> bool:
    """Return whether the file at a path or URL can be read, and has this size and digest."""
    try:
        if is_local(place):
            path = local_path(place)
            return path.stat().st_size == size_bytes and file_sha256(path) == sha256
        store, name = open_store(place)
        if store.size(name) != size_bytes:
            return False
        with store.open(name, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except Exception:  # noqa: BLE001 - each kind of store raises different errors, and an unreadable output does not count
        return False


def _shown(path: Path, container: Container, expected: Sequence[int], tick: Fraction) -> tuple[int, bool]:
    """Return how many pictures a file shows, and whether each is shown at the written time."""
    if not container.carries_times:
        return len(expected), True
    try:
        with open_source(str(path), limits=NO_LIMITS, undecoded=container.has_header) as opened:
            stream = opened.streams.video[0]
            times = sorted({p.pts for p in opened.demux(stream) if p.size and not p.is_discard and p.pts is not None})
            time_base = Fraction(stream.time_base or 1)
    except (InputError, av.error.FFmpegError, IndexError) as error:
        raise ProofFailed(f"the joined file cannot be read back: {error}", _REPORT_IT) from error
    # Times count from the first picture, because a container's clock may not start at 0.
    return len(times), len(times) == len(expected) and all(
        (seen - times[0]) * time_base == (wanted - expected[0]) * tick
        for seen, wanted in zip(times, expected, strict=True)
    )
