"""MIG: whether a GPU is cut, into which slices, which engines each has, and how it could be cut.

Engines are per slice, and some slices have none: an A100's 1g.5gb has no decoder. What a slice has is what
``nvmlDeviceGetAttributes_v2`` says of it, never what its name suggests. GPU instance profiles also tell how many
engines the whole GPU has, which NVML says nowhere else. (NVML API Reference Manual, "Multi Instance GPU Management".)
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import MemoryUse, MigProfile, MigReport, MigSlice
from ..report.engines import Engine, EngineCount, How
from .calls import DeviceQuestions, read_text

MIB = 1024 * 1024
PROFILES_MAX = 32  # NVML numbers the kinds of profile from 0, has 18 today, and refuses what it does not know
SLICES_MAX = 64


def probe_mig(questions: DeviceQuestions, profiles: tuple[MigProfile, ...]) -> Maybe[MigReport]:
    """Ask how a GPU is cut; ``profiles`` are from ``probe_profiles``. Never raises.

    Slices come without per-engine use (``gpm_percent``): the measurement fills it in.
    """
    mode: Maybe[tuple[int, int]] = questions.ask("nvmlDeviceGetMigMode", read=lambda pair: (int(pair[0]), int(pair[1])))
    if isinstance(mode, Unavailable):
        return mode
    slices_max: Maybe[int] = questions.ask("nvmlDeviceGetMaxMigDeviceCount", read=int)
    enabled = mode[0] == 1
    places = SLICES_MAX if isinstance(slices_max, Unavailable) else min(slices_max, SLICES_MAX)
    slices, refused = _slices(questions, places, profiles) if enabled else ((), None)
    return MigReport(
        enabled=enabled,
        pending=mode[1] == 1,
        slices_max=slices_max,
        slices=slices,
        profiles=profiles,
        slices_refused=refused,
    )


def probe_profiles(questions: DeviceQuestions) -> tuple[MigProfile, ...]:
    """Ask which kinds of GPU instance the GPU can be cut into; empty where it cannot be cut. Never raises."""
    found = (_profile(questions, kind) for kind in range(PROFILES_MAX))
    return tuple(profile for profile in found if profile is not None)


def whole_gpu_engines(profiles: Iterable[MigProfile]) -> tuple[EngineCount, ...]:
    """Return the engines of the whole GPU: those of the profile that takes all of it.

    That is the one with the most memory, and of several with as much the one with the most engines. Empty where the
    GPU has no profiles: then only a trial, ``GetDecoderCaps`` or a table can tell.
    """
    ranked = sorted(profiles, key=lambda profile: (profile.memory_bytes, sum(count.count for count in profile.engines)))
    return ranked[-1].engines if ranked else ()


def _profile(questions: DeviceQuestions, kind: int) -> MigProfile | None:
    function = "nvmlDeviceGetGpuInstanceProfileInfoV"
    info: Maybe[MigProfile] = questions.ask(function, kind, 2, read=_read_profile)
    if isinstance(info, Unavailable) and info.absence is Absence.FUNCTION_NOT_FOUND:
        info = questions.ask("nvmlDeviceGetGpuInstanceProfileInfo", kind, 1, read=_read_profile)
    if isinstance(info, Unavailable):
        return None
    free: Maybe[int] = questions.ask("nvmlDeviceGetGpuInstanceRemainingCapacity", info.profile_id, read=int)
    return replace(info, instances_free=free)


def _read_profile(info: Any) -> MigProfile:
    memory_mib = int(info.memorySizeMB)
    # Version 1 has no name; slices and memory are what the names are made of.
    name = read_text(getattr(info, "name", "")) or f"{int(info.sliceCount)}g.{round(memory_mib / 1024)}gb"
    return MigProfile(
        profile_id=int(info.id),
        name=name.removeprefix("MIG "),
        memory_bytes=memory_mib * MIB,
        engines=_counts(info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount),
        instances_max=int(info.instanceCount),
        instances_free=Unavailable(Absence.NOT_FOUND, "not asked yet"),
    )


def _counts(decoders: int, encoders: int, jpegs: int, ofas: int) -> tuple[EngineCount, ...]:
    engines = ((Engine.NVDEC, decoders), (Engine.NVENC, encoders), (Engine.NVJPG, jpegs), (Engine.OFA, ofas))
    return tuple(EngineCount(engine, int(count), How.ASKED) for engine, count in engines)


def _slices(
    questions: DeviceQuestions, places: int, profiles: tuple[MigProfile, ...]
) -> tuple[tuple[MigSlice, ...], Unavailable | None]:
    """Return the slices, and why there may be more."""
    slices: list[MigSlice] = []
    refused: Unavailable | None = None
    for place in range(places):
        handle: Maybe[Any] = questions.ask("nvmlDeviceGetMigDeviceHandleByIndex", place, read=lambda found: found)
        piece = handle if isinstance(handle, Unavailable) else _slice(questions, handle, profiles)
        if isinstance(piece, MigSlice):
            slices.append(piece)
        elif piece.absence is not Absence.NOT_FOUND:  # a place may be empty, also between two that are taken
            refused = refused or piece
    return tuple(slices), refused


def _slice(questions: DeviceQuestions, handle: object, profiles: tuple[MigProfile, ...]) -> MigSlice | Unavailable:
    uuid: Maybe[str] = questions.ask_of(handle, "nvmlDeviceGetUUID", read=read_text)
    gpu_instance: Maybe[int] = questions.ask_of(handle, "nvmlDeviceGetGpuInstanceId", read=int)
    if isinstance(uuid, Unavailable):
        return uuid  # nothing can be pinned to it
    if isinstance(gpu_instance, Unavailable):
        return gpu_instance
    compute_instance: Maybe[int] = questions.ask_of(handle, "nvmlDeviceGetComputeInstanceId", read=int)
    engines = questions.ask_of(
        handle,
        "nvmlDeviceGetAttributes_v2",
        read=lambda said: _counts(
            said.sharedDecoderCount, said.sharedEncoderCount, said.sharedJpegCount, said.sharedOfaCount
        ),
    )
    return MigSlice(
        uuid=uuid,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        profile=_slice_profile(questions, handle, gpu_instance, profiles),
        memory=questions.ask_of(handle, "nvmlDeviceGetMemoryInfo", read=read_memory),
        engines=known(engines, ()),
        gpm_percent=Unavailable(Absence.NOT_FOUND, "per-engine use was not measured"),
    )


def _slice_profile(
    questions: DeviceQuestions, handle: object, gpu_instance: int, profiles: tuple[MigProfile, ...]
) -> str:
    """Return "1g.10gb": from the slice's name, else by its GPU instance's profile, else from its attributes."""
    name: Maybe[str] = questions.ask_of(handle, "nvmlDeviceGetName", read=read_text)
    if not isinstance(name, Unavailable) and " MIG " in name:
        return name.partition(" MIG ")[2].strip()
    instance = questions.ask("nvmlDeviceGetGpuInstanceById", gpu_instance, read=lambda found: found)
    if not isinstance(instance, Unavailable):
        number: Maybe[int] = questions.ask_of(instance, "nvmlGpuInstanceGetInfo", read=lambda info: int(info.profileId))
        for profile in profiles:
            if profile.profile_id == number:
                return profile.name
    made = questions.ask_of(
        handle,
        "nvmlDeviceGetAttributes_v2",
        read=lambda said: f"{int(said.gpuInstanceSliceCount)}g.{round(int(said.memorySizeMB) / 1024)}gb",
    )
    return known(made, "unknown")


def read_memory(info: Any) -> MemoryUse:
    """Read NVML's memory structure."""
    return MemoryUse(int(info.total), int(info.used), int(info.free))
