"""From polls of a device to what placement counts on: which part of it others use, and whether it may get work.

Pure functions over frozen values. What rises counts at once while nothing of ours runs on the device, and in the second
poll in a row while something does, since our own part is taken off by figures of another moment. What falls counts in
the second poll. So work does not move to and fro with every change of a load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ...placement.model.inventory import Device, DeviceState
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe, Unavailable, known
from ...probes.report.engines import Engine
from ...probes.report.placeable import why_unplaceable
from ...probes.vgpu.licence import fps_limit

__all__ = ["Condition", "LoadBasis", "OwnLoad", "Settled", "next_condition", "settle", "unseen", "with_condition"]

FULL_PERCENT: Final = 100
NOTICED: Final = 0.1
"""The part of an engine by which a load must differ to count as another one."""
ROUNDING: Final = 1e-9
STEPS: Final = 20
"""Loads of engines are counted in twentieths."""
MEMORY_NOTICED: Final = 0.02
"""The same of a memory: a few sessions' worth."""
POLLS_TO_BELIEVE: Final = 2
OWN_MARGIN: Final = 1.25
"""Where our own use is told by our speed, it is taken for so much more: rates are not exact, and our own load must not
pass for others'."""


class LoadBasis(Enum):
    """How what others use is told from what is ours."""

    NO_WORK_OF_OURS = "no work of ours is on it"
    PROCESS = "by process"
    SPEED = "all use, less what the speed of our workers explains"


@dataclass(frozen=True, slots=True)
class Settled:
    """A part of something, from 0 to 1, that placement counts on.

    ``away`` counts polls in a row that say otherwise: above 0 those that saw more, below 0 those that saw less.
    """

    part: float = 0.0
    away: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoad:
    """What is known of our own use of a device: whether a worker of ours has it, and work, and what that explains.

    ``parts`` are of each kind of engine, from 0 to 1: what our speed takes, the most since the last poll. {} is none,
    or a speed that is not known yet.
    """

    has_worker: bool = False
    is_working: bool = False
    parts: Mapping[Engine, float] = field(default_factory=dict)
    encoder_sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A device as its polls left it.

    ``others`` are the parts of its engines that others use. ``memory_others_bytes`` is None where that is not known.
    ``xids`` keep it from work until a user opens its node again. ``sick`` says why it gets none, "" where it may.
    """

    seen: DeviceHealth
    seen_s: float
    basis: LoadBasis
    others: Mapping[Engine, Settled]
    memory_others: Settled
    memory_others_bytes: int | None = None
    encoder_sessions_others: int = 0
    xids: tuple[int, ...] = ()
    sick: str = ""

    @property
    def trouble(self) -> str:
        """Return why it should get no work by its last poll; it may be sick still when this is "" again."""
        return why_unplaceable(replace(self.seen.health, xids=self.xids))


def settle(before: Settled, part: float, polls_to_rise: int, noticed: float = NOTICED) -> Settled:
    """Return what to count on after one more poll that saw ``part``; changes of less than ``noticed`` are none."""
    part = 0.0 if part < noticed - ROUNDING else min(part, 1.0)
    if abs(part - before.part) < noticed - ROUNDING and (part > 0 or before.part == 0):
        return Settled(before.part)
    direction = 1 if part > before.part else -1
    away = before.away + direction if before.away * direction > 0 else direction
    polls = polls_to_rise if direction > 0 else POLLS_TO_BELIEVE
    return Settled(part) if abs(away) >= polls else Settled(before.part, away)


def next_condition(
    before: Condition | None, seen: DeviceHealth, own: OwnLoad, xids: tuple[int, ...], now_s: float
) -> Condition:
    """Return a device's condition after one more poll.

    Args:
        before: that after the last one, None for the first.
        seen: the poll.
        own: what is known of our own use.
        xids: all that keep it from work by now.
        now_s: when it was polled.
    """
    basis = _basis(seen, own)
    memory_others = _memory_others(before, seen, own)
    found = Condition(
        seen=seen,
        seen_s=now_s,
        basis=basis,
        others={engine: _engine_others(before, seen, own, engine, basis) for engine in _ENGINES},
        memory_others=Settled() if before is None else before.memory_others,
        memory_others_bytes=None,
        encoder_sessions_others=_sessions_others(seen, own),
        xids=xids,
    )
    if memory_others is not None and not isinstance(seen.memory, Unavailable) and seen.memory.total_bytes:
        total = seen.memory.total_bytes
        settled = settle(found.memory_others, memory_others / total, 1, MEMORY_NOTICED)
        found = replace(found, memory_others=settled, memory_others_bytes=int(settled.part * total))
    return replace(found, sick=found.trouble or ("" if before is None else before.sick))


def unseen(before: Condition) -> Condition:
    """Return the condition of a device that has not been polled for a while: its load is forgotten, its state kept."""
    return replace(before, others={}, memory_others=Settled(), memory_others_bytes=None, encoder_sessions_others=0)


_ENGINES: Final = (Engine.NVDEC, Engine.NVENC)


def use_of(seen: DeviceHealth, engine: Engine) -> Maybe[int]:
    """Return how busy a device's engines of a kind are, in percent."""
    return seen.decoder_percent if engine is Engine.NVDEC else seen.encoder_percent


def _basis(seen: DeviceHealth, own: OwnLoad) -> LoadBasis:
    if not own.is_working:
        return LoadBasis.NO_WORK_OF_OURS
    by_process = not isinstance(seen.ours, Unavailable) and not isinstance(seen.ours.decoder_percent, Unavailable)
    return LoadBasis.PROCESS if by_process else LoadBasis.SPEED


def _engine_others(
    before: Condition | None, seen: DeviceHealth, own: OwnLoad, engine: Engine, basis: LoadBasis
) -> Settled:
    was = Settled() if before is None else before.others.get(engine, Settled())
    percent = use_of(seen, engine)
    if isinstance(percent, Unavailable):  # one answer that is missing is no proof that the load has gone
        return settle(was, 0.0, 1)
    part = percent / FULL_PERCENT - _own_part(seen, own, engine, basis)
    # In steps, so that many GPUs under about the same load are alike to placement.
    return settle(was, round(part * STEPS) / STEPS, 1 if basis is LoadBasis.NO_WORK_OF_OURS else POLLS_TO_BELIEVE)


def _own_part(seen: DeviceHealth, own: OwnLoad, engine: Engine, basis: LoadBasis) -> float:
    if basis is LoadBasis.NO_WORK_OF_OURS:
        return 0.0
    by_speed = own.parts.get(engine, 0.0) * OWN_MARGIN
    if basis is LoadBasis.PROCESS and not isinstance(seen.ours, Unavailable):
        ours = seen.ours.decoder_percent if engine is Engine.NVDEC else seen.ours.encoder_percent
        return by_speed if isinstance(ours, Unavailable) else ours / FULL_PERCENT
    return by_speed


def _memory_others(before: Condition | None, seen: DeviceHealth, own: OwnLoad) -> int | None:
    """Return what others have of the memory: all that is used, less ours; what it was while ours cannot be told."""
    if isinstance(seen.memory, Unavailable):
        return None
    if not own.has_worker:
        return seen.memory.used_bytes
    if not isinstance(seen.ours, Unavailable) and not isinstance(seen.ours.memory_bytes, Unavailable):
        return max(0, seen.memory.used_bytes - seen.ours.memory_bytes)
    return None if before is None else before.memory_others_bytes


def _sessions_others(seen: DeviceHealth, own: OwnLoad) -> int:
    if isinstance(seen.encoder_sessions, Unavailable):
        return 0
    ours = own.encoder_sessions
    if not isinstance(seen.ours, Unavailable):
        ours = known(seen.ours.encoder_sessions, ours)
    return max(0, seen.encoder_sessions - ours)


def with_condition(device: Device, condition: Condition) -> Device:
    """Return a device as placement is to count on it, after its last poll."""
    busy = {engine: level.part for engine, level in condition.others.items() if level.part}
    counted = replace(device, busy=busy, encoder_sessions_others=condition.encoder_sessions_others)
    if not isinstance(condition.seen.licence, Unavailable):
        counted = replace(counted, fps_max=fps_limit(device.kind, condition.seen.licence))
    if condition.memory_others_bytes is not None and not isinstance(condition.seen.memory, Unavailable):
        free = condition.seen.memory.total_bytes - condition.memory_others_bytes
        counted = replace(counted, free_memory_bytes=max(0, free))
    if condition.sick and device.state is DeviceState.OPEN:
        reason = condition.trouble or f"{condition.sick}, and no probe has passed since"
        counted = replace(counted, state=DeviceState.QUARANTINED, state_reason=reason)
    return counted
