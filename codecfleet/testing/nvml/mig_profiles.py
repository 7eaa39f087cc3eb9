"""The MIG profiles of a simulated GPU as NVML numbers them: kinds, ids, and where their GPU instances may lie.

Engines and memory are those of ``configs/hardware.toml``. Ids and placements are from the Multi-Instance GPU User
Guide ("Supported MIG Profiles", and the listings of ``nvidia-smi mig -lgip`` and ``-lgipp``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...cluster.probes.gpus import MIB, MigProfileFacts, load_hardware
from ...cluster.probes.report import Engine
from ...cluster.simulated.devices import SimulatedSlice

_SEVENTHS: Final = 7
_MEMORY_OF_SEVENTHS: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices by compute slices, of a GPU that has seven: it has eight of memory."""

_KINDS: Final[Mapping[str, Mapping[int, int]]] = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6},
    "+me": {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12, 3: 17},
    "-me": {1: 13, 2: 14},
    "+me.all": {1: 15, 2: 16},
}
"""NVML_GPU_INSTANCE_PROFILE_* by what follows the size in a profile's name, and by slices."""

_WIDE: Final = 9
"""NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2: one slice with the memory of two."""

_IDS: Final[Mapping[int, Mapping[int, int]]] = {
    7: {0: 19, 1: 14, 2: 9, 3: 5, 4: 0, 7: 20, _WIDE: 15},
    4: {0: 14, 1: 5, 3: 0, 7: 21, 8: 6, 10: 47, 11: 35, 12: 32, 13: 67, 14: 66, 15: 65, 16: 64},
}
_FROM_THE_START: Final = 2
_UNLISTED_ID: Final = 100
"""Where made-up ids begin: those of GPUs that the guide prints no listing of."""

COMPUTE_KINDS: Final[Mapping[int, int]] = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML_COMPUTE_INSTANCE_PROFILE_* by slices; the ids are the same numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeProfile:
    """A kind of GPU instance. Placements count in slices of the GPU's memory: ``starts``, each ``size`` long."""

    kind: int
    profile_id: int
    name: str
    slices: int
    memory_bytes: int
    engines: Mapping[Engine, int]
    most: int
    size: int
    starts: tuple[int, ...]


def profiles_of_gpu(name: str) -> tuple[FakeProfile, ...]:
    """Return the kinds of GPU instance of the GPU with this NVML name by their number; none where we know none."""
    table = load_hardware().mig_profiles_of(name)
    whole = max((_slices(profile) for profile in table), default=0)
    plain: set[int] = set()
    found = []
    for profile, facts in table.items():
        suffix = _suffix(profile)
        wide = not suffix and _slices(profile) in plain
        plain |= set() if suffix else {_slices(profile)}
        found.append(_profile(profile, facts, whole, _WIDE if wide else _KINDS[suffix][_slices(profile)]))
    return tuple(sorted(found, key=lambda each: each.kind))


def compute_sizes(slices: int) -> tuple[int, ...]:
    """Return the sizes of compute instances, in slices, that a GPU instance of this many can have."""
    return tuple(size for size in COMPUTE_KINDS if size <= slices and (slices, size) != (4, 3))


def placements_of(profiles: Iterable[FakeProfile], slices: Iterable[SimulatedSlice]) -> dict[int, tuple[int, int]]:
    """Return where each GPU instance lies, by its number: the first memory slice and how many.

    They are laid out as in the guide's listings: the largest first, those of more than two slices from the end. One
    that does not fit is laid behind the others.
    """
    known = {profile.name: profile for profile in profiles}
    wanted = {part.gpu_instance: known[part.profile] for part in slices if part.profile in known}
    taken: set[int] = set()
    found = {}
    for number, profile in sorted(wanted.items(), key=lambda pair: -pair[1].size):
        starts = profile.starts if profile.size <= _FROM_THE_START else profile.starts[::-1]
        free = [start for start in starts if not taken & set(range(start, start + profile.size))]
        start = free[0] if free else max(taken, default=-1) + 1
        taken |= set(range(start, start + profile.size))
        found[number] = (start, profile.size)
    return found


def _profile(name: str, facts: MigProfileFacts, whole: int, kind: int) -> FakeProfile:
    slices = _slices(name)
    size = slices if whole != _SEVENTHS else 2 if kind == _WIDE else _MEMORY_OF_SEVENTHS[slices]
    memory_slices = whole if whole != _SEVENTHS else whole + 1
    places = min(memory_slices // size, whole // slices)
    return FakeProfile(
        kind=kind,
        profile_id=_IDS.get(whole, {}).get(kind, _UNLISTED_ID + kind),
        name=name,
        slices=slices,
        memory_bytes=facts.memory_mib * MIB,
        engines=facts.engine_counts(),
        most=facts.most,
        size=size,
        starts=tuple(size * place for place in range(places)),
    )


def _slices(profile: str) -> int:
    return int(profile.partition("g.")[0])


def _suffix(profile: str) -> str:
    found = re.fullmatch(r"\d+g\.\d+gb(.*)", profile)
    return found[1] if found else ""
