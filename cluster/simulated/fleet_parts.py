"""What a fleet file says that a GPU is divided into: MIG devices, and vGPUs that run on it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, NoReturn

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ...errors import UsageError
from ..probes.gpus.hardware import MIB, MigProfileFacts, VgpuTypeEntry
from .devices import SimulatedSlice, SimulatedVgpu

GIB = 1 << 30
Gibibytes = Annotated[float, Field(gt=0, le=1_000_000)]


class Strict(BaseModel):
    """A table of a fleet file: unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class VgpuEntry(Strict):
    """One vGPU that runs on a host's GPU. A type that the tables lack needs its id and frame buffer."""

    instance: Annotated[int, Field(ge=0)]
    type_name: str
    type_id: int | None = None
    framebuffer_gib: Gibibytes | None = None
    vm: str
    licensed: bool = True
    licence_expires: AwareDatetime | None = None
    frame_rate_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Resolves the parts of one GPU. ``where`` begins each message: the file and the GPU's model."""

    where: str
    uuid: str
    memory_mib: int
    profiles: Mapping[str, MigProfileFacts]
    vgpu_types: Mapping[str, VgpuTypeEntry]

    def slices(self, instances: Iterable[str | tuple[str, ...]]) -> tuple[SimulatedSlice, ...]:
        """Return the MIG devices of these GPU instances: a profile, or the names of its compute instances.

        "3g.20gb" is one device with all of its GPU instance; ("1c.3g.20gb", "2c.3g.20gb") are two that share one.

        Raises:
            UsageError: a profile is unknown or taken too often, or there are more compute slices than it has.
        """
        named = [(each,) if isinstance(each, str) else each for each in instances]
        shares = [[_compute_instance(name) for name in names] for names in named]
        for names in shares:
            if len({profile for profile, _ in names}) != 1:
                self._refuse("makes compute instances of one GPU instance of several profiles, or of none")
        self._check([names[0][0] for names in shares])
        return tuple(part for number, names in enumerate(shares) for part in self._instance(number, names))

    def _check(self, taken: list[str]) -> None:
        for profile in taken:
            if profile not in self.profiles:
                self._refuse(f"has no MIG profile {profile}", f"It has {', '.join(self.profiles) or 'none'}.")
            most = self.profiles[profile].most
            if taken.count(profile) > most:
                self._refuse(f"holds {most} of {profile} at most")
        slices, whole = sum(map(_gpu_slices, taken)), max(map(_gpu_slices, self.profiles), default=0)
        if slices > whole:
            self._refuse(f"has {whole} compute slices, and its MIG takes {slices}")
        memory_mib = sum(self.profiles[profile].memory_mib for profile in taken)
        if memory_mib > self.memory_mib:
            self._refuse(f"has {self.memory_mib} MiB of memory, and its MIG takes {memory_mib}")

    def _instance(self, number: int, names: list[tuple[str, int | None]]) -> Iterator[SimulatedSlice]:
        profile = names[0][0]
        whole, facts = _gpu_slices(profile), self.profiles[profile]
        taken = sum(whole if share is None else share for _, share in names)
        if taken > whole or any(share == 0 for _, share in names):
            self._refuse(f"has {whole} compute slices in a {profile}, and its compute instances take {taken}")
        for place, (_, share) in enumerate(names):
            yield SimulatedSlice(
                uuid=made_uuid("MIG", self.uuid, profile, number, *([place] if place else [])),
                gpu_instance=number + 1,
                profile=profile,
                memory_bytes=facts.memory_mib * MIB,
                engines=facts.engine_counts(),
                compute_instance=place,
                compute_slices=None if share == whole else share,
            )

    def vgpus(self, entries: tuple[VgpuEntry, ...]) -> tuple[SimulatedVgpu, ...]:
        """Return the vGPUs that run on the GPU.

        Raises:
            UsageError: a type is unknown, or more run than the GPU holds.
        """
        running = [entry.type_name for entry in entries]
        for name in running:
            if name in self.vgpu_types and running.count(name) > self.vgpu_types[name].most:
                self._refuse(f"holds {self.vgpu_types[name].most} of {name} at most")
        return tuple(self._vgpu(entry) for entry in entries)

    def _vgpu(self, entry: VgpuEntry) -> SimulatedVgpu:
        known = self.vgpu_types.get(entry.type_name)
        number = entry.type_id if known is None or entry.type_id is not None else known.number
        size = None if known is None else known.framebuffer_mib * MIB
        size = int(entry.framebuffer_gib * GIB) if entry.framebuffer_gib is not None else size
        if number is None or size is None:
            advice = f"Give its type_id and framebuffer_gib, or one of {', '.join(self.vgpu_types) or 'none'}."
            self._refuse(f"has no vGPU type {entry.type_name} that the tables know", advice)
        return SimulatedVgpu(
            instance=entry.instance,
            type_id=number,
            type_name=entry.type_name,
            uuid=made_uuid("", self.uuid, entry.vm, entry.instance).removeprefix("-"),
            vm_id=entry.vm,
            framebuffer_bytes=size,
            licensed=entry.licensed,
            licence_expires=entry.licence_expires,
            frame_rate_limit=entry.frame_rate_limit,
        )

    def _refuse(self, said: str, advice: str = "Take some away.") -> NoReturn:
        raise UsageError(f"{self.where} {said}", advice)


def _compute_instance(name: str) -> tuple[str, int | None]:
    """Return a GPU instance's profile and the compute slices of it: None for all of "3g.20gb", 1 for "1c.3g.20gb"."""
    share, dot, profile = name.partition("c.")
    return (profile, int(share)) if dot and share.isdigit() else (name, None)


def _gpu_slices(profile: str) -> int:
    """Return how much of a GPU an instance takes, by its profile's name: 3 for "3g.20gb"."""
    return int(profile.partition("g.")[0])


def made_uuid(prefix: str, *parts: object) -> str:
    """Return a UUID that is the same whenever the file is read."""
    text = sha256("/".join(str(part) for part in parts).encode()).hexdigest()
    return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
