"""Documented facts about video engines: ``configs/hardware.toml`` as frozen values.

Probes replace the documented counts and capabilities; workers' measurements replace the rates.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ..report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from ..report.tables import read_tables

MIB = 1 << 20
_MOST_VGPUS = 32  # the most vGPUs of one type on a GPU for which NVIDIA's guide states no limit
# The ids of types on MIG profiles begin this far after ``unlisted_id``, the first invented id of time-shared types.
_TIME_SHARED_MOST = 50


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Capability(NamedTuple):
    """A row of a capability table: a format that an engine supports, and the largest picture in pixels."""

    codec: MediaCodec
    chroma: str
    bit_depths: tuple[int, ...]
    max_width: int
    max_height: int


class DecoderRates(_Frozen):
    """The speed of one NVDEC in frames a second, at 1080p and ``reference_clock_mhz``. Keys are "CODEC DEPTH"."""

    reference_clock_mhz: int
    fps: dict[str, float]


class MigProfileFacts(_Frozen):
    """Facts about one instance of a MIG profile."""

    engines: tuple[int, int, int, int]  # the numbers of NVDEC, NVENC, NVJPG and OFA
    memory_mib: int
    most: int  # how many instances fit on the GPU

    def engine_counts(self) -> dict[Engine, int]:
        """Return how many engines of each kind an instance has."""
        kinds = (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA)
        return {kind: count for kind, count in zip(kinds, self.engines, strict=True) if count}


class Architecture(_Frozen):
    """A GPU architecture: the generations of its engines, its name in NVML and its compute capability."""

    nvdec: str  # the generation of NVDEC; "" if there is no NVDEC
    nvenc: str  # the generation of NVENC; "" if there is no NVENC
    nvml: str  # the name of the architecture in NVML
    compute_capability: str


class VgpuTypeEntry(_Frozen):
    """A vGPU type that a GPU can host."""

    number: int
    name: str
    framebuffer_mib: int
    most: int  # how many vGPUs of this type can run at the same time
    mig_profile: str = ""  # the MIG profile of the vGPU; "" outside MIG mode

    @property
    def series(self) -> str:
        """The letter of the type's series: "Q", "B", "A" or "C"."""
        return self.name.removesuffix("ME")[-1:]


class VgpuBoard(_Frozen):
    """The vGPU types of one GPU."""

    prefix: str  # the prefix of the types' names
    memory_gib: int  # memory of the GPU
    unlisted_id: int  # the first invented id, for types whose id is unknown
    series: dict[str, tuple[int, ...]]  # the sizes of frame buffers in GiB, by series
    first_id: dict[str, int] = {}  # NVML's id of the first type of each series
    # how many vGPUs of a type ("8Q") can run at the same time, if fewer than the memory allows
    fewer: dict[str, int] = {}

    def shared(self) -> Iterator[VgpuTypeEntry]:
        """Yield the vGPU types whose vGPUs share the GPU by time slices."""
        unlisted = count(self.unlisted_id)
        for series, sizes in self.series.items():
            numbers = count(self.first_id[series]) if series in self.first_id else unlisted
            for gib, number in zip(sizes, numbers, strict=False):
                most = self.fewer.get(f"{gib}{series}", min(_MOST_VGPUS, self.memory_gib // gib))
                yield VgpuTypeEntry(
                    number=number, name=f"{self.prefix}-{gib}{series}", framebuffer_mib=gib << 10, most=most
                )

    def on_instances(self, profiles: Mapping[str, MigProfileFacts]) -> Iterator[VgpuTypeEntry]:
        """Yield the vGPU types on MIG profiles; for example, "A100-1-5CME" is on the profile 1g.5gb+me."""
        named = [(re.fullmatch(r"(\d+)g\.(\d+)gb(\+me)?", profile), profile) for profile in profiles]
        for number, (parts, profile) in enumerate(named, self.unlisted_id + _TIME_SHARED_MOST):
            if parts is not None:
                yield VgpuTypeEntry(
                    number=number,
                    name=f"{self.prefix}-{parts[1]}-{parts[2]}C{'ME' if parts[3] else ''}",
                    framebuffer_mib=int(parts[2]) << 10,
                    most=profiles[profile].most,
                    mig_profile=profile,
                )


class GpuModel(_Frozen):
    """Documented facts about a GPU model."""

    names: tuple[str, ...]
    architecture: str
    memory_mib: int
    engines: dict[Engine, int]
    confidence: dict[str, str]  # how well each value is known
    source: str
    video_clock_mhz: int | None = None
    mig: str = ""
    geforce: bool = False
    igpu: bool = False
    note: str = ""  # why the model's engines cannot be used


class MeasuredRates(_Frozen):
    """Rates measured on a GPU model."""

    model: str
    case: str
    direction: Direction
    width: int
    height: int
    curve: tuple[tuple[int, float], ...]  # points: (number of sessions, frames a second of all sessions together)
    source: str


class Sessions(_Frozen):
    """How sessions share engines, how long a session takes to open, and the documented limits on sessions."""

    decoding: tuple[tuple[float, float], ...]  # points: (sessions on an engine, fraction of the documented speed)
    encoding: tuple[tuple[float, float], ...]
    start_s: float  # how long a session takes to open
    first_start_s: float  # how long a process's first session takes to open, with its CUDA context
    encoder_sessions_geforce_system: int
    source: str


class SessionMemory(_Frozen):
    """Device memory of a process and of a session."""

    context_mib: int  # memory of a process without sessions
    session_mib: int  # memory of a session at 1080p and 8 bits
    session_1080p_frames: int  # ``session_mib`` in frames; a session of larger frames takes as many of these
    source: str


class SoftwareRates(_Frozen):
    """The speed of software codecs on one reference core in frames a second, at 1080p and 8 bits."""

    reference_core: str
    encode_threads: int
    # each encoder's speed with presets 1 to 7
    encode: dict[str, Annotated[tuple[float, ...], Field(min_length=7, max_length=7)]]
    decode: dict[MediaCodec, float]
    ten_bits: float  # the factor by which 10-bit pictures change the speed
    source: str


class EncoderMemory(_Frozen):
    """The memory of a software encoder."""

    mib: int  # the memory in MiB, without pictures
    first_pictures: int  # how many pictures the encoder holds from the start
    # The most pictures that the encoder holds, with presets 1 to 7.
    pictures: Annotated[tuple[int, ...], Field(min_length=7, max_length=7)]


class HostMemory(_Frozen):
    """The host memory of a job, in MiB and in pictures."""

    rest_mib: int  # memory of Ray, the job's driver and the worker process
    session_mib: int
    decode_pictures: int
    filter_pictures: int
    # how many pictures an encoder holds for each frame of a segment, up to the encoder's maximum
    pictures_per_frame: int
    pictures_per_thread: int  # how many more pictures are held for each encoder thread beyond two
    encode: dict[str, EncoderMemory]
    source: str


class Hardware(_Frozen):
    """All tables in ``configs/hardware.toml``."""

    schema_version: int = Field(alias="schema")
    sources: dict[str, str]
    nvdec: dict[str, DecoderRates]
    # fps of one NVENC at 1080p with P1, P3, P5 and P7
    nvenc: dict[str, dict[MediaCodec, tuple[float, float, float, float]]]
    architectures: dict[str, Architecture]
    decodes: dict[str, tuple[Capability, ...]]
    encodes: dict[str, tuple[Capability, ...]]
    # the names of an engine generation's tables in ``decodes`` and ``encodes``
    capabilities_of: dict[str, dict[str, str]]
    sessions: Sessions
    memory: SessionMemory
    software: SoftwareRates
    host: HostMemory
    measured: tuple[MeasuredRates, ...]
    gpus: dict[str, GpuModel]
    mig: dict[str, dict[str, MigProfileFacts]]
    vgpu: dict[str, VgpuBoard]
    _models: dict[str, GpuModel | None] = PrivateAttr(default_factory=dict)

    def mig_profiles_of(self, name: str) -> dict[str, MigProfileFacts]:
        """Return the MIG profiles of the GPU with this name in NVML; {} if unknown."""
        model = self.model_of(name)
        return {} if model is None else self.mig.get(model.mig, {})

    def vgpu_types_of(self, name: str, *, mig_enabled: bool) -> tuple[VgpuTypeEntry, ...]:
        """Return the vGPU types of the GPU with this name in NVML; () if unknown."""
        named = [spelt for spelt in self.vgpu if _begins(name, spelt)]
        if not named:
            return ()
        board = self.vgpu[max(named, key=len)]
        return tuple(board.on_instances(self.mig_profiles_of(name)) if mig_enabled else board.shared())

    def model_of(self, name: str) -> GpuModel | None:
        """Return the model of the GPU with this name in NVML; None if unknown.

        A MIG slice ("NVIDIA H200 MIG 1g.18gb") or a vGPU ("NVIDIA L40S-12Q") counts as the GPU in its name.
        """
        if name not in self._models:
            named = [
                (len(spelt), key)
                for key, model in self.gpus.items()
                for spelt in model.names
                if _begins(name, spelt) or (spelt in self.vgpu and name.startswith(f"{self.vgpu[spelt].prefix}-"))
            ]
            self._models[name] = self.gpus[max(named)[1]] if named else None
        return self._models[name]

    def architecture_of(self, name: str, architecture: str, compute_capability: str = "") -> str:
        """Return the name of a GPU's architecture, by its model or else by NVML's ``architecture``; "" if unknown.

        NVML calls both GA100 and GA10x "ampere"; the compute capability tells them apart.
        """
        known = self.model_of(name)
        if known is not None:
            return known.architecture
        spoken = architecture.lower()
        if spoken in self.architectures and not compute_capability:
            return spoken
        alike = [key for key, entry in self.architectures.items() if spoken in (key, entry.nvml)]
        exact = [key for key in alike if self.architectures[key].compute_capability == compute_capability]
        return next(iter(exact or alike), "")

    def trials_of(self, name: str, model: GpuModel, engines: dict[Engine, int]) -> tuple[Trial, ...]:
        """Return the trials of a simulated GPU with the NVML name ``name``: one for each case in the tables.

        As on a real GPU, the cases of an engine that the GPU lacks do not work.
        """
        found = []
        for engine, direction in ((Engine.NVDEC, Direction.DECODE), (Engine.NVENC, Direction.ENCODE)):
            tables = self.decodes if direction is Direction.DECODE else self.encodes
            generation = getattr(self.architectures[model.architecture], engine.value)
            rows = tables[self.capabilities_of[generation][f"{direction.value}s"]] if generation else ()
            able = {case: row for row in rows for case in _cases(row, direction)}
            asked = {case: None for table in tables.values() for row in table for case in _cases(row, direction)}
            count, missing = engines.get(engine, 0), model.note or f"{name} has no {engine.name}"
            found += [_trial(case, engine, able.get(case), count, missing) for case in asked]
        return tuple(found)


def _cases(row: Capability, direction: Direction) -> list[CodecCase]:
    return [CodecCase(row.codec, direction, row.chroma, depth) for depth in row.bit_depths]


def _trial(case: CodecCase, engine: Engine, row: Capability | None, count: int, missing: str) -> Trial:
    cannot = f"its {engine.name} cannot {case.direction.value} {case.codec.value} {case.bit_depth}-bit {case.chroma}"
    works = row is not None and count > 0
    return Trial(
        case=case,
        engine=engine,
        implementation=engine.value,
        works=works,
        how=How.SIMULATED,
        max_width=row.max_width if row is not None and works else None,
        max_height=row.max_height if row is not None and works else None,
        engines=count if works else None,
        reason="" if works else cannot if count else missing,
    )


def _begins(name: str, spelt: str) -> bool:
    return name == spelt or name.startswith(f"{spelt} ")


@cache
def load_hardware() -> Hardware:
    """Return the tables in ``configs/hardware.toml``."""
    return Hardware.model_validate(read_tables("hardware.toml"))
