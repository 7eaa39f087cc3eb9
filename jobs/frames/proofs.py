"""Proves that a decoder may begin at an access point that does not reset it."""

import threading
from contextlib import closing
from typing import Any

import av.codec

from ...actors.decode.picture_hash import PictureHash
from ...actors.media.seeking import AccessPoint
from ...actors.segment.decode_path import DecodePath
from ...actors.segment.walk import SEAM_FRAMES, SegmentWalk
from ..board.board import seams_agree
from .source import FrameSource


class EntryProofs:
    """Finds how far back the entry of a group must be, once for each group. Thread-safe.

    An entry is proven if decoding from further back gives the same first pictures of the group. Cuts between segments
    are proven in the same way.
    """

    def __init__(self, source: FrameSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._proven: dict[tuple[int, str], int] = {}
        self._is_intra = _is_intra_only(source.ranges.index.codec)

    def moves(self, group: int, path: DecodePath[Any], fallback: str) -> int:
        """Return how many steps before its usual entry a group is decoded.

        Raises the errors of ``SegmentWalk.results``.
        """
        key = (group, path.decoder.name)
        with self._lock:
            known = self._proven.get(key)
        if known is None:
            known = self._prove(group, path, fallback)
            with self._lock:
                self._proven[key] = known
        return known

    def _prove(self, group: int, path: DecodePath[Any], fallback: str) -> int:
        part = self._source.part
        segment, moves = part.groups[group], 0
        if part.is_counted and not group:
            return moves
        seen: tuple[PictureHash, ...] | None = None
        while not self._is_clean(self._source.ranges.entry(segment, moves)):
            seen = self._seam(group, moves, path, fallback) if seen is None else seen
            earlier = self._seam(group, moves + 1, path, fallback)
            if seams_agree(earlier, seen):
                break
            moves, seen = moves + 1, earlier
        return moves

    def _is_clean(self, entry: AccessPoint | None) -> bool:
        return entry is None or self._is_intra or self._source.ranges.index.resets_decoder(entry.packet)

    def _seam(self, group: int, moves: int, path: DecodePath[Any], fallback: str) -> tuple[PictureHash, ...]:
        """Return the hashes of a group's first pictures, if decoding starts ``moves`` steps before the usual entry."""
        part, ranges = self._source.part, self._source.ranges
        segment = part.groups[group]
        if part.is_counted:
            range_ = ranges.decode(segment, moves)
        else:
            ticks = part.first_ticks_of(group, SEAM_FRAMES)
            range_ = ranges.decode_wanted(segment, moves, frozenset(ticks), part.last_packet(ticks))
        walk: SegmentWalk[Any, None] = SegmentWalk(
            range_, (segment.start_ticks, None), path, fallback, make=lambda *_: ((0, None),), seen=int, in_thread=False
        )
        with closing(walk.results()) as results:
            for _ in results:
                if len(walk.before) == SEAM_FRAMES:
                    break
        return tuple(walk.before)


def _is_intra_only(codec: str) -> bool:
    """Return whether no picture of a codec refers to another."""
    try:
        return bool(av.codec.Codec(codec).intra_only)
    except ValueError:  # unknown to FFmpeg
        return False
