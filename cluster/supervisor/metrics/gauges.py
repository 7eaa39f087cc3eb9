"""How things stand, as samples: a pure function of the supervisor's state."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from ...placement.model.inventory import Device
from ...probes.report.absence import Maybe, Unavailable
from ...probes.report.device_report import DeviceKind
from ..state.clients import JobBook
from ..state.conditions import FULL_PERCENT, Condition, use_of
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from . import table
from .table import Metric, MetricSample, SessionOwner

T = TypeVar("T")


def gauges_of(state: SupervisorState, fps: Mapping[str, float]) -> Iterator[MetricSample]:
    """Yield a sample for every series of every gauge but the queue's age: 0 too, so that none keeps an old value.

    ``fps`` are the speeds of workers, in source frames a second.
    """
    nodes = [book.node for book in state.nodes]
    devices = [device for node in nodes for device in node.devices if device.kind is not DeviceKind.CPU]
    yield from _counted(table.NODES, ((node.state.value,) for node in nodes))
    yield MetricSample(table.NODES_WANTED, sum(size.wanted for size in state.scaling.decision.sizes))
    yield from _counted(table.DEVICES, ((device.kind.value, device.state.value) for device in devices))
    yield from _workers(state, fps)
    yield from _queue(state)
    yield from _polled(state, devices)


def is_waiting(job: JobBook) -> bool:
    """Return whether a job has segments left, and neither a slot nor work that runs."""
    return bool(job.demand.segments) and not any(job.promised.values()) and not any(job.held.values())


def used_slots(state: SupervisorState, book: StationBook) -> int:
    """Return how many pieces of work run on a station's process, as their drivers report."""
    return sum(job.held.get(book.worker, 0) for job in state.clients.at(book.worker))


def _counted(metric: Metric, found: Iterable[tuple[str, ...]]) -> Iterator[MetricSample]:
    counts = Counter(found)
    for labels in product(*metric.labels.values()):
        yield MetricSample(metric, counts[labels], labels)


def _workers(state: SupervisorState, fps: Mapping[str, float]) -> Iterator[MetricSample]:
    books = state.stations.values()
    yield from _counted(table.WORKERS, ((book.station.engine, book.state.value) for book in books))
    for engine in table.WORKER_ENGINES:
        ready = [book for book in books if book.state is StationState.READY and book.station.engine == engine]
        yield MetricSample(table.SLOTS, sum(book.ready_slots for book in ready), (engine,))
        yield MetricSample(table.SLOTS_IN_USE, sum(used_slots(state, book) for book in ready), (engine,))
        yield MetricSample(table.SPEED, sum(fps.get(book.worker, 0.0) for book in ready), (engine,))


def _queue(state: SupervisorState) -> Iterator[MetricSample]:
    jobs = state.clients.jobs()
    phases = (table.DemandPhase.WAITING if is_waiting(job) else table.DemandPhase.WORKING for job in jobs)
    yield MetricSample(table.CLIENTS, len(state.clients))
    yield from _counted(table.JOBS, ((phase.value,) for phase in phases))
    yield MetricSample(table.QUEUE_SEGMENTS, sum(len(job.demand.segments) for job in jobs))
    yield MetricSample(table.QUEUE_FRAMES, sum(sum(job.demand.segments) for job in jobs))


def _polled(state: SupervisorState, devices: Iterable[Device]) -> Iterator[MetricSample]:
    names = {device.device for device in devices}
    found = [each for book in state.nodes for name, each in book.conditions.items() if name in names]
    for engine in table.POLLED_ENGINES:
        uses = _known(use_of(each.seen, engine) for each in found)
        mean = sum(uses) / len(uses) / FULL_PERCENT if uses else 0.0
        yield MetricSample(table.ENGINE_USE, mean, (engine.value,))
    memories = _known(each.seen.memory for each in found)
    yield MetricSample(table.GPU_MEMORY_USED, sum(memory.used_bytes for memory in memories))
    yield MetricSample(table.GPU_MEMORY, sum(memory.total_bytes for memory in memories))
    yield from _sessions(state, found)


def _sessions(state: SupervisorState, found: Iterable[Condition]) -> Iterator[MetricSample]:
    ours = sum(book.encoding for book in state.stations.values())
    others = sum(each.encoder_sessions_others for each in found)
    yield MetricSample(table.ENCODER_SESSIONS, ours, (SessionOwner.OURS.value,))
    yield MetricSample(table.ENCODER_SESSIONS, others, (SessionOwner.OTHERS.value,))


def _known(values: Iterable[Maybe[T]]) -> list[T]:
    return [value for value in values if not isinstance(value, Unavailable)]
