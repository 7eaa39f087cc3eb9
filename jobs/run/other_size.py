"""Measures what a file holds besides its pictures: sound, subtitles, and what the container adds."""

from collections.abc import Sequence
from pathlib import Path

from ...actors.tracks.audio import EncodedTrack
from ...errors import SizeExceeded
from ..carry.track_plan import Action
from ..join.gather import Gather
from ..join.spool import SpooledSegment
from ..plan.plan import Plan
from ..source.tracks import TrackKind

_USUAL_SOUND_BPS = 160_000
_BITS = 8
Joined = Sequence[tuple[SpooledSegment, int | None]]


def guessed_bytes(plan: Plan, source_bytes: int | None) -> int:
    """Estimate, before anything is encoded, how many bytes the tracks besides the pictures will take.

    ``source_bytes`` is the source's size, None if unknown.
    """
    kept = [each for each in plan.carry.tracks if each.kept]
    encoded = [each for each in kept if each.action is Action.ENCODE and each.track.kind is TrackKind.AUDIO]
    sound = sum((each.bit_rate_bps or _USUAL_SOUND_BPS) * plan.duration_s / _BITS for each in encoded)
    others = max(0, (source_bytes or 0) - int(plan.index.sizes_bytes.sum()))
    part = plan.duration_s / max(
        plan.duration_s, (plan.index.end_ticks - plan.index.first_ticks) * plan.index.time_base
    )
    copied = others * part * (len(kept) - len(encoded)) / max(1, len(plan.carry.tracks))
    return int(sound + copied)


def joined_other_bytes(plan: Plan, path: Path, encoded: dict[tuple[int, int], EncodedTrack], joined: Joined) -> int:
    """Write the whole output to ``path``, return how much larger it is than its pictures, and delete it.

    Raises SizeExceeded: the requested size leaves no room for pictures.
    """
    gather = Gather(plan, path, encoded)
    try:
        for segment, following in joined:
            gather.join(segment, following)
        gather.finish()
        other_bytes = path.stat().st_size - sum(segment.payload_bytes for segment, _ in joined)
    except BaseException:  # even after a cancellation, the file is closed
        gather.abandon()
        raise
    finally:
        path.unlink(missing_ok=True)
    if plan.spec.size_bytes is not None and other_bytes >= plan.spec.size_bytes:
        message = f"sound, subtitles and container take {other_bytes} bytes; the file may have {plan.spec.size_bytes}"
        raise SizeExceeded(message, SizeExceeded.WHAT_NEXT)
    return other_bytes
