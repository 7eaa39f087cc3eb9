"""Queries MIG: a GPU's slices and their engines, and its profiles ("Multi Instance GPU Management").

A slice's name does not show which engines the slice has: an A100's 1g.5gb has no decoder. Only the profiles state the
engine counts of the whole GPU.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import MemoryUse, MigProfile, MigReport, MigSlice
from ..report.engines import Engine, EngineCount, How
from .calls import DeviceQuestions, read_text

MIB = 1024 * 1024
# NVML numbers profiles from 0. There were 18 when this was written; NVML refuses other numbers.
PROFILES_MAX = 32
SLICES_MAX = 64


def probe_mig(questions: DeviceQuestions, profiles: tuple[MigProfile, ...]) -> Maybe[MigReport]:
    """Query how a GPU is partitioned; ``profiles`` are the GPU's profiles. Never raises."""
    mode: Maybe[tuple[int, int]] = questions.ask("nvmlDeviceGetMigMode", read=lambda pair: (int(pair[0]), int(pair[1])))
    if isinstance(mode, Unavailable):
        return mode
    slices_max: Maybe[int] = questions.ask("nvmlDeviceGetMaxMigDeviceCount", read=int)
    places = min(known(slices_max, SLICES_MAX), SLICES_MAX)
    slices, refused = _slices(questions, places) if mode[0] == 1 else ((), None)
    return MigReport(
        enabled=mode[0] == 1,
        pending=mode[1] == 1,
        slices_max=slices_max,
        slices=slices,
        profiles=profiles,
        slices_refused=refused,
    )


def probe_profiles(questions: DeviceQuestions) -> tuple[MigProfile, ...]:
    """Query the profiles of a GPU; () if the GPU cannot be partitioned. Never raises."""
    found = (_profile(questions, kind) for kind in range(PROFILES_MAX))
    return tuple(profile for profile in found if profile is not None)


def whole_gpu_engines(profiles: Iterable[MigProfile]) -> tuple[EngineCount, ...]:
    """Return the engines of the whole GPU: those of its largest profile; () if there are no profiles.

    The largest profile has the most memory or, if memory is equal, the most engines.
    """
    ranked = sorted(profiles, key=lambda profile: (profile.memory_bytes, sum(count.count for count in profile.engines)))
    return ranked[-1].engines if ranked else ()


def _profile(questions: DeviceQuestions, kind: int) -> MigProfile | None:
    info: Maybe[MigProfile] = questions.ask("nvmlDeviceGetGpuInstanceProfileInfoV", kind, 2, read=_read_profile)
    if isinstance(info, Unavailable):
        return None
    free: Maybe[int] = questions.ask("nvmlDeviceGetGpuInstanceRemainingCapacity", info.profile_id, read=int)
    return replace(info, instances_free=free)


def _read_profile(info: Any) -> MigProfile:
    return MigProfile(
        profile_id=int(info.id),
        name=read_text(info.name).removeprefix("MIG "),
        memory_bytes=int(info.memorySizeMB) * MIB,
        engines=_counts(info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount),
        instances_max=int(info.instanceCount),
        instances_free=Unavailable(Absence.NOT_FOUND, "not asked yet"),
    )


def _counts(decoders: int, encoders: int, jpegs: int, ofas: int) -> tuple[EngineCount, ...]:
    engines = ((Engine.NVDEC, decoders), (Engine.NVENC, encoders), (Engine.NVJPG, jpegs), (Engine.OFA, ofas))
    return tuple(EngineCount(engine, int(count), How.ASKED) for engine, count in engines)


def _slices(questions: DeviceQuestions, places: int) -> tuple[tuple[MigSlice, ...], Unavailable | None]:
    slices: list[MigSlice] = []
    refused: Unavailable | None = None
    for place in range(places):
        handle: Maybe[Any] = questions.ask("nvmlDeviceGetMigDeviceHandleByIndex", place, read=lambda found: found)
        piece = handle if isinstance(handle, Unavailable) else _slice(questions, handle)
        if isinstance(piece, MigSlice):
            slices.append(piece)
        elif piece.absence is not Absence.NOT_FOUND:  # there may be no instance with this index
            refused = refused or piece
    return tuple(slices), refused


def _slice(questions: DeviceQuestions, handle: object) -> MigSlice | Unavailable:
    ask = partial(questions.ask_of, handle)
    uuid: Maybe[str] = ask("nvmlDeviceGetUUID", read=read_text)
    gpu_instance: Maybe[int] = ask("nvmlDeviceGetGpuInstanceId", read=int)
    if isinstance(uuid, Unavailable):
        return uuid  # no work can be pinned to this instance
    if isinstance(gpu_instance, Unavailable):
        return gpu_instance
    return MigSlice(
        uuid=uuid,
        gpu_instance=gpu_instance,
        compute_instance=ask("nvmlDeviceGetComputeInstanceId", read=int),
        profile=_slice_profile(ask("nvmlDeviceGetName", read=read_text)),
        memory=ask("nvmlDeviceGetMemoryInfo", read=read_memory),
        engines=known(ask("nvmlDeviceGetAttributes_v2", read=_shared_counts), ()),
    )


def _shared_counts(attributes: Any) -> tuple[EngineCount, ...]:
    return _counts(
        attributes.sharedDecoderCount,
        attributes.sharedEncoderCount,
        attributes.sharedJpegCount,
        attributes.sharedOfaCount,
    )


def _slice_profile(name: Maybe[str]) -> str:
    """Return a profile such as "1g.10gb" from the name of a slice: "NVIDIA H200 MIG 1g.10gb"."""
    return known(name, "").partition(" MIG ")[2].strip() or "unknown"


def read_memory(info: Any) -> MemoryUse:
    """Read NVML's memory structure."""
    return MemoryUse(int(info.total), int(info.used), int(info.free))
