"""Predicts when a placed job ends, which lane runs each segment, and the cost in GPU seconds and core seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from ...probes.gpus.hardware import Hardware, load_hardware
from ..model.demand import Demand
from ..model.placement import Lane, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSchedule:
    """The segments that one lane runs, and when the lane is done."""

    lane: Lane
    segments: tuple[int, ...]  # the indices of the lane's segments in ``Demand.segments``
    frames: int
    ends_s: float  # when the lane's last segment is done, counted from the job's first session


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time and cost of a job in the current placement."""

    # The time from the start of the first session to the end of the last segment; None if nothing was placed.
    wall_s: float | None
    gpu_s: float  # total time for which GPUs or slices are held
    cpu_s: float  # core-seconds: the time that each core is in use, summed over all cores
    lanes: tuple[LaneSchedule, ...]


def predict(demand: Demand, placement: Placement, hardware: Hardware | None = None) -> Prediction:
    """Return a demand's time and cost in a placement, assuming that no job arrives and nothing fails meanwhile.

    The longest segments go first, each to the session that finishes it soonest. A host's GPU sessions start one after
    the other, because drivers open decoders one at a time.
    """
    lanes = [lane for lane in placement.lanes if lane.job == demand.job]
    free = _free_sessions(lanes, hardware or load_hardware())
    taken: list[list[int]] = [[] for _ in lanes]
    ends = [0.0] * len(lanes)
    order = sorted(range(len(demand.segments)), key=lambda number: (-demand.segments[number], number))
    for number in order if lanes else ():
        frames = demand.segments[number]
        ends_s, index, fps = min((heap[0][0] + frames / fps, heap[0][1], fps) for fps, heap in free.items())
        heapreplace(free[fps], (ends_s, index))
        taken[index].append(number)
        ends[index] = max(ends[index], ends_s)
    frames_of = [sum(demand.segments[number] for number in numbers) for numbers in taken]
    scheduled = tuple(
        LaneSchedule(lane=lane, segments=tuple(sorted(numbers)), frames=frames, ends_s=end)
        for lane, numbers, frames, end in zip(lanes, taken, frames_of, ends, strict=True)
    )
    held: dict[str, float] = {}
    for entry in scheduled:
        if not entry.lane.route.is_software:
            held[entry.lane.device] = max(held.get(entry.lane.device, 0.0), entry.ends_s)
    wall_s = max((entry.ends_s for entry in scheduled), default=None)
    cpu_s = sum(entry.lane.cores * entry.frames / entry.lane.fps for entry in scheduled if entry.lane.fps > 0)
    return Prediction(wall_s=wall_s, gpu_s=sum(held.values()), cpu_s=cpu_s, lanes=scheduled)


def _free_sessions(lanes: Sequence[Lane], hardware: Hardware) -> dict[float, list[tuple[float, int]]]:
    """Return a heap for each speed; an entry is the time when a session becomes free, and the index of its lane."""
    times, opened = hardware.sessions, dict[str, int]()
    free: dict[float, list[tuple[float, int]]] = {}
    for index, lane in enumerate(lanes):
        sessions = free.setdefault(lane.fps / lane.sessions, [])
        before = opened.get(lane.node, 0)
        if lane.route.is_software:
            sessions += [(0.0, index)] * lane.sessions
        else:
            sessions += [(times.first_start_s + (before + n) * times.start_s, index) for n in range(lane.sessions)]
            opened[lane.node] = before + lane.sessions
    for sessions in free.values():
        heapify(sessions)
    return free
