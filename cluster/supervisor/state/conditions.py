"""Derives from polls how much of a device other programs use, and whether the device may get work.

A change counts when two polls in a row show it. One poll is enough for a rise of memory use and, while codecfleet runs
no work on the device, for any rise, because all use is then by other programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ...placement.model.inventory import Device
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe, Unavailable, known
from ...probes.report.device_report import why_unplaceable
from ...probes.report.engines import MEDIA_ENGINES, Engine
from ...probes.vgpu.hosted import HostedVgpu
from ...probes.vgpu.licence import UNLICENSED_FPS, fps_limit

FULL_PERCENT: Final = 100
NOTICED: Final = 0.1
"""The smallest change of an engine's load that counts."""
ROUNDING: Final = 1e-9
STEPS: Final = 20
"""Loads of engines are rounded to twentieths."""
MEMORY_NOTICED: Final = 0.02
"""The smallest change of memory use that counts: the memory of a few sessions."""
POLLS_TO_BELIEVE: Final = 2
OWN_MARGIN: Final = 1.25
"""If codecfleet's use is estimated from speed, it is multiplied by this factor, so that none of it counts as other
programs' use.
"""


class LoadBasis(Enum):
    """How other programs' use is distinguished from codecfleet's use."""

    ALL_OTHERS = "all use is by other programs: codecfleet runs nothing on the device"
    PROCESS = "use is reported by process"
    SPEED = "codecfleet's use is estimated from the speed of its work"


@dataclass(frozen=True, slots=True)
class Level:
    """The part of an engine or memory that other programs use, as placement counts it after several polls."""

    part: float = 0.0
    away: int = 0  # how many polls in a row saw more (positive) or less (negative) than ``part``


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoad:
    """codecfleet's own use of a device."""

    has_worker: bool = False
    is_working: bool = False
    # The largest fraction of each engine that codecfleet used since the last poll; {} if none or unknown.
    parts: Mapping[Engine, float] = field(default_factory=dict)
    encoder_sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A device's condition after the last poll."""

    seen: DeviceHealth
    seen_s: float
    basis: LoadBasis
    others: Mapping[Engine, Level]  # the fractions of the device's engines that other programs use
    memory_others: Level
    memory_others_bytes: int | None = None  # how much memory other programs use; None if unknown
    encoder_sessions_others: int = 0
    xids: tuple[int, ...] = ()  # Xids that keep the device from work until a user uncordons the node

    @property
    def trouble(self) -> str:
        """Why the last poll rules out work on the device, or ""; a quarantine does not count here."""
        return why_unplaceable(replace(self.seen.health, xids=self.xids))


def next_level(before: Level, part: float, polls_to_rise: int, noticed: float = NOTICED) -> Level:
    """Return the level after one more poll that saw ``part``; changes below ``noticed`` are ignored."""
    part = 0.0 if part < noticed - ROUNDING else min(part, 1.0)
    if abs(part - before.part) < noticed - ROUNDING and (part > 0 or before.part == 0):
        return Level(before.part)
    direction = 1 if part > before.part else -1
    away = before.away + direction if before.away * direction > 0 else direction
    polls = polls_to_rise if direction > 0 else POLLS_TO_BELIEVE
    return Level(part) if abs(away) >= polls else Level(before.part, away)


def next_condition(
    before: Condition | None,
    seen: DeviceHealth,
    own: OwnLoad,
    xids: tuple[int, ...],
    now_s: float,
    *,
    part: float = 1.0,
) -> Condition:
    """Return a device's condition after one more poll.

    ``xids`` are all Xids that keep the device from work. ``part`` is the utilisation, from 0 to 1, that a poll reports
    when the device uses all of its share of an engine.
    """
    seen = _of_its_own(seen, part)
    basis = _basis(seen, own)
    level, others_bytes = Level() if before is None else before.memory_others, None
    used_bytes = _memory_others(before, seen, own)
    if used_bytes is not None and not isinstance(seen.memory, Unavailable) and seen.memory.total_bytes:
        level = next_level(level, used_bytes / seen.memory.total_bytes, 1, MEMORY_NOTICED)
        others_bytes = int(level.part * seen.memory.total_bytes)
    return Condition(
        seen=seen,
        seen_s=now_s,
        basis=basis,
        others={engine: _engine_others(before, seen, own, engine, basis) for engine in MEDIA_ENGINES},
        memory_others=level,
        memory_others_bytes=others_bytes,
        encoder_sessions_others=_sessions_others(seen, own),
        xids=xids,
    )


def _of_its_own(seen: DeviceHealth, part: float) -> DeviceHealth:
    """Convert a poll's percentages of the whole engine to percentages of the device's own part, at most 100."""
    if part >= 1:
        return seen
    ours = seen.ours
    if not isinstance(ours, Unavailable):
        decoder, encoder = _scaled(ours.decoder_percent, part), _scaled(ours.encoder_percent, part)
        ours = replace(ours, decoder_percent=decoder, encoder_percent=encoder)
    decoder, encoder = _scaled(seen.decoder_percent, part), _scaled(seen.encoder_percent, part)
    return replace(seen, decoder_percent=decoder, encoder_percent=encoder, ours=ours)


def _scaled(percent: Maybe[int], part: float) -> Maybe[int]:
    return percent if isinstance(percent, Unavailable) else min(FULL_PERCENT, round(percent / part))


def unseen(before: Condition) -> Condition:
    """Return the condition of a device without a recent poll: other programs' use is dropped, all else kept."""
    return replace(before, others={}, memory_others=Level(), memory_others_bytes=None, encoder_sessions_others=0)


def use_of(seen: DeviceHealth, engine: Engine) -> Maybe[int]:
    """Return how busy a device's engines of this kind are, in percent."""
    return seen.decoder_percent if engine is Engine.NVDEC else seen.encoder_percent


def _basis(seen: DeviceHealth, own: OwnLoad) -> LoadBasis:
    if not own.is_working:
        return LoadBasis.ALL_OTHERS
    by_process = not isinstance(seen.ours, Unavailable) and not isinstance(seen.ours.decoder_percent, Unavailable)
    return LoadBasis.PROCESS if by_process else LoadBasis.SPEED


def _engine_others(
    before: Condition | None, seen: DeviceHealth, own: OwnLoad, engine: Engine, basis: LoadBasis
) -> Level:
    was = Level() if before is None else before.others.get(engine, Level())
    percent = use_of(seen, engine)
    if isinstance(percent, Unavailable):  # one missing answer does not prove that the load is gone
        return next_level(was, 0.0, 1)
    part = percent / FULL_PERCENT - _own_part(seen, own, engine, basis)
    polls = 1 if basis is LoadBasis.ALL_OTHERS else POLLS_TO_BELIEVE
    # The load is rounded, so that GPUs under similar load are equal for placement.
    return next_level(was, round(part * STEPS) / STEPS, polls)


def _own_part(seen: DeviceHealth, own: OwnLoad, engine: Engine, basis: LoadBasis) -> float:
    if basis is LoadBasis.ALL_OTHERS:
        return 0.0
    if basis is LoadBasis.PROCESS and not isinstance(seen.ours, Unavailable):
        ours = seen.ours.decoder_percent if engine is Engine.NVDEC else seen.ours.encoder_percent
        if not isinstance(ours, Unavailable):
            return ours / FULL_PERCENT
    return own.parts.get(engine, 0.0) * OWN_MARGIN


def _memory_others(before: Condition | None, seen: DeviceHealth, own: OwnLoad) -> int | None:
    """Return other programs' memory use: all memory in use minus codecfleet's use.

    While codecfleet's use is unknown, the earlier result stays.
    """
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


def with_hosted(device: Device, hosted: HostedVgpu) -> Device:
    """Return a copy of a vGPU that has the share and licence reported by its host."""
    if known(hosted.licensed, otherwise=True) is False:
        device = replace(device, fps_max=UNLICENSED_FPS)
    return device if hosted.share is None else replace(device, share=hosted.share, share_unknown="")


def with_condition(device: Device, condition: Condition) -> Device:
    """Return a device as placement should see it after the last poll."""
    busy = {engine: level.part for engine, level in condition.others.items() if level.part}
    counted = replace(device, busy=busy, encoder_sessions_others=condition.encoder_sessions_others)
    if not isinstance(condition.seen.licence, Unavailable):
        counted = replace(counted, fps_max=fps_limit(device.kind, condition.seen.licence))
    if condition.memory_others_bytes is not None and not isinstance(condition.seen.memory, Unavailable):
        free = condition.seen.memory.total_bytes - condition.memory_others_bytes
        counted = replace(counted, free_memory_bytes=max(0, free))
    return counted
