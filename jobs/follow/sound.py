"""Encodes a sound track of a recording in one go, and hands it out in parts that begin and end with the pictures."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import floor
from pathlib import Path
from typing import Final

import av
import av.error
import numpy as np

from ...actors.device.work import WorkContext
from ...actors.media.growing import GrowingFile
from ...actors.media.headers import language_changes
from ...actors.media.location import HeldSource
from ...actors.media.structure import change_finished
from ...actors.tracks.audio import EncodeAudio, EncodedTrack
from ...errors import InputUnreadable, StorageFailed, UsageError
from ..board.threads import in_thread
from ..carry.carry import CarryPlan
from ..carry.track_plan import Action
from ..join.side_tracks import SideTracks
from ..join.spool import storage_error
from ..ladder.tracks import given_sides
from ..package.growing import TrackPart
from .recording import Recording

_POLL_S: Final = 0.05
_VIDEO_TICK: Final = Fraction(1, 90_000)


class LiveSound:
    """One track, which is encoded as the recording grows: one encoder from its beginning, so that no seam is heard."""

    def __init__(self, work: EncodeAudio, recording: Recording) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._given: list[EncodedTrack] = []
        self._until_s: Fraction | None = None
        self._file: GrowingFile | None = None
        self._whole = recording.read(self._run)

    async def take(self, until_s: Fraction | None, read_bytes: int) -> EncodedTrack | None:
        """Return the packets that begin before ``until_s`` on the source's clock, or all; None if there are none.

        Waits until they are encoded, or until the recording was read up to ``read_bytes`` without them.
        """
        while not self._is_ready(until_s, read_bytes):
            await asyncio.sleep(_POLL_S)
        if self._whole.done():
            self._whole.result()
        with self._lock:
            given = _joined(self._given)
            if given is None:
                return None
            count = len(given.pts)
            if until_s is not None:
                count = int(np.searchsorted(given.pts, -(-until_s // given.time_base)))
            taken, rest = _split(given, count)
            self._given = [] if rest is None else [rest]
            return taken

    def _is_ready(self, until_s: Fraction | None, read_bytes: int) -> bool:
        if self._whole.done():
            return True
        if until_s is None:
            return False
        has_read = self._file is not None and self._file.waits_at >= read_bytes
        return has_read or (self._until_s is not None and self._until_s >= until_s)

    def _run(self, file: GrowingFile, held: HeldSource) -> None:
        self._file = file
        self._give(replace(self._work, source=held).run(WorkContext(), self._give))

    def _give(self, track: EncodedTrack) -> None:
        with self._lock:
            self._given.append(track)
            if len(track.pts):
                self._until_s = int(track.pts[-1] + track.durations[-1]) * track.time_base


class LiveSounds:
    """All sound tracks of a recording, in files of one part and one track each.

    Args:
        carry: the plan of the tracks.
        recording: where they are read.
        folder: where the files are written.

    Raises UsageError: a track would be copied.
    """

    def __init__(self, carry: CarryPlan, recording: Recording, folder: Path) -> None:
        copied = [each.track.name for each in carry.tracks if each.kept and each.action is not Action.ENCODE]
        if copied:
            raise UsageError(f"--follow encodes sound, but {copied[0]} would be copied", "Use --audio aac or opus.")
        source = str(recording.path)
        self._source, self._carry, self._folder = source, carry, folder
        # Later formats are not known yet; the first one decides.
        works = carry.audio_works("follow", source).items()
        self._tracks = {index: LiveSound(replace(work, later=()), recording) for index, work in works}

    async def part(
        self, first: int, begin_s: Fraction | None, end_s: Fraction | None, read_bytes: int, origin_s: Fraction
    ) -> dict[int, Fraction]:
        """Write the sound of the part that begins with segment ``first``.

        Args:
            first: the part's first segment.
            begin_s: where the part begins on the source's clock; None for the beginning.
            end_s: where it ends; None for the end.
            read_bytes: sound that is not in the file up to here belongs to a later part.
            origin_s: the package's time 0 on the source's clock.

        Returns when each track's file begins in the package, by stream; a track without sound in the part has no file.
        Raises InputUnreadable: a track has no sound beside the first pictures; StorageFailed.
        """
        begins_s: dict[int, Fraction] = {}
        for index, sound in self._tracks.items():
            if begin_s is not None:
                await sound.take(begin_s, read_bytes)  # an earlier run has published it
            track = await sound.take(end_s, read_bytes)
            if track is None and not first:
                message = f"track {index} of {self._source} has no sound beside the first pictures"
                raise InputUnreadable(message, "Choose other tracks with --audio-track, or use --audio none.")
            if track is None:
                continue
            zero = floor(origin_s / track.time_base + Fraction(1, 2))
            begins_s[index] = (int(track.pts[0]) - zero) * track.time_base if first else Fraction(0)
            own_s = int(track.pts[0]) * track.time_base if first else origin_s
            path = _path(self._folder, index, first)
            await in_thread(_write_part, path, self._source, self._carry, {index: track}, own_s)
        return begins_s

    @staticmethod
    def tracks(folder: Path, first: int, begins_s: Mapping[int, Fraction], order: Sequence[int]) -> list[TrackPart]:
        """Return the tracks of a part that was written; ``order`` has the streams of all tracks."""
        return [
            TrackPart(replace(given_sides(_path(folder, index, first))[0], name=f"sound-{number}"), begins_s[index])
            for number, index in enumerate(order, 1)
            if index in begins_s
        ]


def _path(folder: Path, index: int, first: int) -> Path:
    return folder / f"sound-{index}-{first:06d}.mp4"


def _joined(tracks: list[EncodedTrack]) -> EncodedTrack | None:
    tracks = [each for each in tracks if len(each.pts)] or tracks[-1:]
    if not tracks or not len(tracks[0].pts):
        return None
    return replace(
        tracks[-1],
        initial_padding=tracks[0].initial_padding,
        pts=np.concatenate([each.pts for each in tracks]),
        durations=np.concatenate([each.durations for each in tracks]),
        sizes_bytes=np.concatenate([each.sizes_bytes for each in tracks]),
        payload=np.concatenate([each.payload for each in tracks]),
    )


def _split(track: EncodedTrack, count: int) -> tuple[EncodedTrack | None, EncodedTrack | None]:
    """Return the first ``count`` packets, and the others."""
    if count == 0 or count == len(track.pts):
        return (track, None) if count else (None, track)
    at = int(track.sizes_bytes[:count].sum())
    first, rest = slice(None, count), slice(count, None)
    return (
        replace(
            track,
            pts=track.pts[first],
            durations=track.durations[first],
            sizes_bytes=track.sizes_bytes[first],
            payload=track.payload[:at],
            trailing_padding=0,
        ),
        replace(
            track,
            pts=track.pts[rest],
            durations=track.durations[rest],
            sizes_bytes=track.sizes_bytes[rest],
            payload=track.payload[at:],
            initial_padding=0,
        ),
    )


def _write_part(
    path: Path, source: str, carry: CarryPlan, part: Mapping[int, EncodedTrack], origin_s: Fraction
) -> None:
    """Write encoded tracks as an mp4 without pictures, whose time 0 is ``origin_s``. Raises StorageFailed."""
    tracks = tuple(each for each in carry.tracks if each.action is Action.ENCODE and each.track.index in part)
    carry = replace(carry, video=None, tracks=tracks, chapters=(), tags=())
    try:
        with (
            SideTracks(source, carry, origin_s=origin_s, encoded=part) as sides,
            av.open(
                str(path), "w", format=carry.container.muxer, container_options=carry.muxer_options(_VIDEO_TICK)
            ) as output,
        ):
            sides.add_to(output)
            for _, packet in sides.packets():
                output.mux(packet)
        if carry.states_language_tags and (form := carry.container.language_tags) is not None:
            change_finished(path, [partial(language_changes, form=form)])
    except OSError as error:
        raise storage_error(error, path) from error
    except av.error.FFmpegError as error:
        raise StorageFailed(f"{path} could not be written: {error}", "Start the ladder again.") from error
