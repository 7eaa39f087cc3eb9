"""Reads each sound track of a recording in one pass, and writes it in parts, cut where the pictures are cut."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from io import BytesIO
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import av
import av.error
import numpy as np

from ...actors.device.work import WorkContext
from ...actors.media.headers import language_changes
from ...actors.media.location import HeldSource
from ...actors.media.structure import change_finished
from ...actors.tracks.audio import EncodeAudio, EncodedTrack
from ...errors import InputUnreadable, StorageFailed
from ..board.threads import in_thread
from ..carry.carry import CarryPlan
from ..carry.track_plan import Action, TrackPlan
from ..join.side_packets import new_packet
from ..join.side_tracks import SideTracks
from ..join.spool import storage_error
from ..ladder.tracks import given_sides
from ..package.growing import TrackPart
from ..source.tracks import TrackKind
from .growing import GrowingFile
from .recording import LiveRecording

if TYPE_CHECKING:
    from av.container import OutputContainer

_POLL_S: Final = 0.05
_VIDEO_TICK: Final = Fraction(1, 90_000)
_HALF: Final = Fraction(1, 2)


class _Packet(NamedTuple):
    """A packet of sound; times are ticks of the track, counted from the package's time 0."""

    pts: int
    duration: int
    data: bytes


class _LiveSound(ABC):
    """One track. A thread reads it in one pass from the beginning, so its packets do not depend on the parts."""

    def __init__(self, carry: CarryPlan, plan: TrackPlan, origin_s: Fraction) -> None:
        self._carry = replace(carry, video=None, tracks=(plan,), chapters=(), tags=())
        self._origin_s = origin_s
        self._lock = threading.Lock()
        self._packets: deque[_Packet] = deque()
        self._whole: asyncio.Future[None] | None = None

    def begin(self, recording: LiveRecording) -> None:
        self._source = str(recording.path)
        self._whole = recording.read(self._run)

    @property
    def name(self) -> str:
        """The track's name in messages."""
        return self._carry.tracks[0].track.name

    @property
    @abstractmethod
    def tick_s(self) -> Fraction:
        """The duration of a tick."""

    @abstractmethod
    def _run(self, file: GrowingFile, held: HeldSource) -> None:
        """Read the whole track, and pass its packets to ``_give``."""

    @abstractmethod
    def write(self, path: Path, packets: Sequence[_Packet], *, is_first: bool) -> None:
        """Write a part. The first part keeps its times, a later one begins at time 0. Raises StorageFailed."""

    async def take(self, until_s: Fraction | None) -> list[_Packet]:
        """Return the next packets, those that begin before ``until_s`` in the package; with None, all that are left.

        Waits until a later packet is read or the recording has ended, so a track that pauses holds the part back.
        """
        while not self._reaches(until_s):  # noqa: ASYNC110 - a thread fills it
            await asyncio.sleep(_POLL_S)
        if self._whole is not None and self._whole.done():
            self._whole.result()
        end = None if until_s is None else ceil(until_s / self.tick_s)
        taken = []
        with self._lock:
            while self._packets and (end is None or self._packets[0].pts < end):
                taken.append(self._packets.popleft())
            if taken and self._packets:  # the last packet's stated duration may be a tick off
                taken[-1] = taken[-1]._replace(duration=self._packets[0].pts - taken[-1].pts)
        return taken

    def _reaches(self, until_s: Fraction | None) -> bool:
        if self._whole is None or self._whole.done():
            return True
        with self._lock:
            last = self._packets[-1].pts if self._packets else None
        return until_s is not None and last is not None and last * self.tick_s >= until_s

    def _give(self, packets: Sequence[_Packet]) -> None:
        with self._lock:
            self._packets.extend(packets)


class _EncodedSound(_LiveSound):
    """A track that a single encoder encodes while the recording grows, so that no seam is heard between parts."""

    def __init__(self, carry: CarryPlan, plan: TrackPlan, origin_s: Fraction, work: EncodeAudio) -> None:
        super().__init__(carry, plan, origin_s)
        self._work = replace(work, later=())  # the first format decides: changes to come are not known
        self._made: EncodedTrack | None = None

    @property
    def tick_s(self) -> Fraction:
        return Fraction(1) if self._made is None else self._made.time_base

    def _run(self, file: GrowingFile, held: HeldSource) -> None:  # noqa: ARG002 - its reads come through ``held``
        self._take(replace(self._work, source=held).run(WorkContext(), self._take))

    def _take(self, track: EncodedTrack) -> None:
        padding = track.initial_padding if self._made is None else self._made.initial_padding
        self._made = replace(track, initial_padding=padding)
        zero = self._zero(track)
        self._give([_Packet(pts - zero, duration, data) for pts, duration, data in track.packets()])

    def _zero(self, track: EncodedTrack) -> int:
        return floor(self._origin_s / track.time_base + _HALF)

    def write(self, path: Path, packets: Sequence[_Packet], *, is_first: bool) -> None:
        made = self._made
        if made is None:
            return
        zero = 0 if is_first else packets[0].pts
        is_end = packets[-1].pts == int(made.pts[-1]) - self._zero(made)  # ``made`` may reach far beyond this part
        part = replace(
            made,
            initial_padding=made.initial_padding if is_first else 0,
            trailing_padding=made.trailing_padding if is_end else 0,
            pts=np.array([each.pts - zero for each in packets], dtype=np.int64),
            durations=np.array([each.duration for each in packets], dtype=np.int64),
            sizes_bytes=np.array([len(each.data) for each in packets], dtype=np.int64),
            payload=np.frombuffer(b"".join(each.data for each in packets), dtype=np.uint8),
        )
        (plan,) = self._carry.tracks
        sides = SideTracks(self._source, self._carry, origin_s=Fraction(0), encoded={plan.key: part})
        with sides, _part_file(path, self._carry) as output:
            sides.add_to(output)
            for _, packet in sides.packets():
                output.mux(packet)


class _CopiedSound(_LiveSound):
    """A track whose packets stay as they are."""

    @property
    def tick_s(self) -> Fraction:
        audio = self._carry.tracks[0].track.audio
        return _VIDEO_TICK if audio is None else Fraction(1, audio.sample_rate)

    def _run(self, file: GrowingFile, held: HeldSource) -> None:  # noqa: ARG002 - its reads come through ``held``
        sides = SideTracks(held, self._carry, origin_s=self._origin_s)
        with sides, av.open(BytesIO(), "w", format=self._carry.container.muxer) as nowhere:
            sides.add_to(nowhere)
            for packet in sides.copied_packets():
                self._give([_Packet(packet.pts or 0, packet.duration or 0, bytes(packet))])

    def write(self, path: Path, packets: Sequence[_Packet], *, is_first: bool) -> None:
        zero = 0 if is_first else packets[0].pts
        sides = SideTracks(
            self._source, self._carry, origin_s=self._origin_s, start_s=None if is_first else self._origin_s
        )
        with sides, _part_file(path, self._carry) as output:
            sides.add_to(output)
            for each in packets:
                packet = new_packet(each.data)
                packet.stream, packet.time_base = output.streams[0], self.tick_s
                packet.pts = packet.dts = each.pts - zero
                packet.duration = each.duration
                output.mux(packet)


@contextmanager
def _part_file(path: Path, carry: CarryPlan) -> "Iterator[OutputContainer]":
    """Open a file of one track for writing. Raises StorageFailed."""
    try:
        options = carry.muxer_options(_VIDEO_TICK)
        with av.open(str(path), "w", format=carry.container.muxer, container_options=options) as output:
            yield output
        if carry.states_language_tags and (form := carry.container.language_tags) is not None:
            change_finished(path, [partial(language_changes, form=form)])
    except OSError as error:
        raise storage_error(error, path) from error
    except av.error.FFmpegError as error:
        raise StorageFailed(f"{path} could not be written: {error}", "Start the ladder again.") from error


class LiveSounds:
    """Writes all sound tracks of a recording; each file holds one part of one track.

    Args:
        carry: the plan of the tracks.
        recording: where they are read.
        folder: where the files are written.
        origin_s: the package's time 0 on the source's clock.
    """

    def __init__(self, carry: CarryPlan, recording: LiveRecording, folder: Path, origin_s: Fraction) -> None:
        self._source, self._folder = str(recording.path), folder
        works = carry.audio_works("follow", self._source)
        self._tracks: dict[int, _LiveSound] = {}
        played = [each for each in carry.tracks if each.kept and each.track.kind is TrackKind.AUDIO]
        for number, plan in enumerate(played, 1):
            if plan.action is Action.ENCODE:
                found: _LiveSound = _EncodedSound(carry, plan, origin_s, works[plan.key])
            else:
                found = _CopiedSound(carry, plan, origin_s)
            found.begin(recording)
            self._tracks[number] = found

    async def part(self, first: int, begin_s: Fraction | None, end_s: Fraction | None) -> dict[int, Fraction]:
        """Write the sound of the part that begins with segment ``first``, from ``begin_s`` to ``end_s`` in the package.

        Returns the package time of each file's time 0, by the track's number; a track without sound in the part has no
        file.
        Raises InputUnreadable: a track has no sound beside the first pictures; StorageFailed.
        """
        begins_s: dict[int, Fraction] = {}
        for number, sound in self._tracks.items():
            if begin_s is not None:
                await sound.take(begin_s)  # packets of parts that an earlier run has written
            packets = await sound.take(end_s)
            if packets:
                begins_s[number] = packets[0].pts * sound.tick_s if first else Fraction(0)
                await in_thread(sound.write, _path(self._folder, number, first), packets, is_first=not first)
            elif not first:
                message = f"{sound.name} of {self._source} has no sound beside the first pictures"
                raise InputUnreadable(message, "Choose other tracks with --audio-track, or use --audio none.")
        return begins_s

    @staticmethod
    def tracks(
        folder: Path, first: int, begins_s: Mapping[int, Fraction], groups: Sequence[tuple[str, ...]]
    ) -> list[TrackPart]:
        """Return a written part's tracks; ``part`` returned ``begins_s``, and ``groups`` is ``FollowState.groups``."""
        found = []
        for number, at_s in begins_s.items():
            (given,) = given_sides(_path(folder, number, first), groups[number - 1 : number])
            found.append(TrackPart(replace(given, name=f"sound-{number}"), at_s))
        return found


def _path(folder: Path, number: int, first: int) -> Path:
    return folder / f"sound-{number}-{first:06d}.mp4"
