"""Documented facts about video engines: ``configs/hardware.toml`` as frozen values.

All are initial values: probes replace counts and capabilities, and workers' measurements replace rates.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ..report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from ..report.tables import read_tables

MIB = 1 << 20
_MOST_VGPUS = 32  # the guide lists no type of these GPUs with more than 32 per GPU, however little memory it has
_TIME_SHARED_MOST = 50  # made-up ids of types on GPU instances follow those of time-shared types at this distance


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Capability(_Frozen):
    """A row of a capability table: what an engine supports, and up to which size in pixels."""

    codec: MediaCodec
    chroma: str
    bit_depths: tuple[int, ...]
    max_width: int
    max_height: int


class DecoderRates(_Frozen):
    """Frames a second of one NVDEC at 1080p and ``reference_clock_mhz``, by "<codec> <bit depth>"."""

    reference_clock_mhz: int
    fps: dict[str, float]


class MigProfileFacts(_Frozen):
    """One instance of a MIG profile: [NVDEC, NVENC, NVJPG, OFA], its memory, and how many fit at most."""

    engines: tuple[int, int, int, int]
    memory_mib: int
    most: int

    def engine_counts(self) -> dict[Engine, int]:
        """Return the engines by kind, without absent kinds."""
        kinds = (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA)
        return {kind: count for kind, count in zip(kinds, self.engines, strict=True) if count}


class Architecture(_Frozen):
    """The generations of engines of an architecture; "" for none. ``nvml`` is the driver's name for it."""

    nvdec: str
    nvenc: str
    nvml: str
    compute_capability: str


class VgpuTypeEntry(_Frozen):
    """A type of vGPU that a GPU can host."""

    number: int
    name: str
    framebuffer_mib: int
    most: int  # how many run at once
    mig_profile: str = ""  # "" outside MIG mode

    @property
    def series(self) -> str:
        """Return the series of the type, by the letter in its name: "Q", "B", "A" or "C"."""
        return self.name.removesuffix("ME")[-1:]


class VgpuBoard(_Frozen):
    """The vGPU types of one GPU."""

    prefix: str  # the beginning of their names
    memory_gib: int  # what they share
    unlisted_id: int
    series: dict[str, tuple[int, ...]]  # their sizes (GiB) by series
    first_id: dict[str, int] = {}
    fewer: dict[str, int] = {}

    def shared(self) -> Iterator[VgpuTypeEntry]:
        """Yield the types that time-share the GPU."""
        unlisted = count(self.unlisted_id)
        for series, sizes in self.series.items():
            numbers = count(self.first_id[series]) if series in self.first_id else unlisted
            for gib, number in zip(sizes, numbers, strict=False):
                most = self.fewer.get(f"{gib}{series}", min(_MOST_VGPUS, self.memory_gib // gib))
                yield VgpuTypeEntry(
                    number=number, name=f"{self.prefix}-{gib}{series}", framebuffer_mib=gib << 10, most=most
                )

    def on_instances(self, profiles: Mapping[str, MigProfileFacts]) -> Iterator[VgpuTypeEntry]:
        """Yield the types that have a whole GPU instance each: "A100-1-5C" a 1g.5gb, "A100-1-5CME" a 1g.5gb+me."""
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
    """One GPU model."""

    names: tuple[str, ...]
    architecture: str
    memory_mib: int
    engines: dict[Engine, int]
    confidence: dict[str, str]  # how each figure is known
    source: str
    video_clock_mhz: int | None = None
    mig: str = ""
    geforce: bool = False
    igpu: bool = False
    note: str = ""  # why its engines cannot be used


class MeasuredRates(_Frozen):
    """Rates measured on a model: pairs of open sessions and the frames a second of all of them together."""

    model: str
    case: str
    direction: Direction
    width: int
    height: int
    curve: tuple[tuple[int, float], ...]
    source: str


class Sessions(_Frozen):
    """How sessions share engines, how long they take to open (s), and the documented caps."""

    decoding: tuple[tuple[float, float], ...]  # sessions per engine, and the fraction of the documented speed
    encoding: tuple[tuple[float, float], ...]
    start_s: float
    first_start_s: float
    encoder_sessions_geforce_system: int
    source: str


class SessionMemory(_Frozen):
    """Device memory of a process and of a session."""

    context_mib: int
    session_mib: int
    session_1080p_frames: int
    source: str


class SoftwareRates(_Frozen):
    """Frames a second of one reference core at 1080p 8 bits; encoders by preset 1 to 7, without decoding."""

    reference_core: str
    encode_threads: int
    encode: dict[str, Annotated[tuple[float, ...], Field(min_length=7, max_length=7)]]
    decode: dict[MediaCodec, float]
    ten_bits: float
    source: str


class EncoderMemory(_Frozen):
    """An encoder's memory beside its pictures, and how many it holds: with the first one, and at most by preset."""

    mib: int
    first_pictures: int
    pictures: Annotated[tuple[int, ...], Field(min_length=7, max_length=7)]


class HostMemory(_Frozen):
    """A session's memory on its host: in MiB, and in pictures of the decoder, a filter and the encoder."""

    rest_mib: int  # for Ray, the driver and the worker's process
    session_mib: int
    decode_pictures: int
    filter_pictures: int
    pictures_per_frame: int  # additional pictures that an encoder holds for each picture of a segment, up to its most
    pictures_per_thread: int  # additional pictures for each of its threads beyond two, without a limit
    encode: dict[str, EncoderMemory]
    source: str


class Hardware(_Frozen):
    """All tables."""

    schema_version: int = Field(alias="schema")
    sources: dict[str, str]
    nvdec: dict[str, DecoderRates]
    nvenc: dict[str, dict[MediaCodec, tuple[float, float, float, float]]]  # fps of one NVENC at 1080p: P1, P3, P5, P7
    architectures: dict[str, Architecture]
    decodes: dict[str, tuple[Capability, ...]]
    encodes: dict[str, tuple[Capability, ...]]
    capabilities_of: dict[str, dict[str, str]]  # by engine: the tables of what it "decodes" and "encodes"
    sessions: Sessions
    memory: SessionMemory
    software: SoftwareRates
    host: HostMemory
    measured: tuple[MeasuredRates, ...]
    gpus: dict[str, GpuModel]
    mig: dict[str, dict[str, MigProfileFacts]]
    vgpu: dict[str, VgpuBoard]
    _models: dict[str, tuple[str, GpuModel] | None] = PrivateAttr(default_factory=dict)

    def mig_profiles_of(self, name: str) -> dict[str, MigProfileFacts]:
        """Return the MIG profiles of the GPU with this NVML name; none if unknown."""
        model = self.model_of(name)
        return self.mig.get(model[1].mig, {}) if model is not None else {}

    def vgpu_types_of(self, name: str, *, mig_enabled: bool) -> tuple[VgpuTypeEntry, ...]:
        """Return the vGPU types that the GPU with this NVML name hosts; none if unknown."""
        named = [spelt for spelt in self.vgpu if _begins(name, spelt)]
        if not named:
            return ()
        board = self.vgpu[max(named, key=len)]
        return tuple(board.on_instances(self.mig_profiles_of(name)) if mig_enabled else board.shared())

    def model_of(self, name: str) -> tuple[str, GpuModel] | None:
        """Return the model with this NVML name and our name for it; None if unknown.

        A MIG slice ("NVIDIA H200 MIG 1g.18gb") or a vGPU ("NVIDIA L40S-12Q") that is named after its GPU counts as that
        GPU.
        """
        if name not in self._models:
            named = [
                (len(spelt), key)
                for key, model in self.gpus.items()
                for spelt in model.names
                if _begins(name, spelt) or (spelt in self.vgpu and name.startswith(f"{self.vgpu[spelt].prefix}-"))
            ]
            self._models[name] = (max(named)[1], self.gpus[max(named)[1]]) if named else None
        return self._models[name]

    def architecture_of(self, name: str, architecture: str, compute_capability: str = "") -> str:
        """Return our name for an architecture: a known model's own, else by the driver's, else "".

        NVML calls both GA100 and GA10x "ampere", though their video engines differ: the compute capability
        distinguishes them.
        """
        known = self.model_of(name)
        if known is not None:
            return known[1].architecture
        spoken = architecture.lower()
        if spoken in self.architectures and not compute_capability:
            return spoken
        alike = [key for key, entry in self.architectures.items() if spoken in (key, entry.nvml)]
        exact = [key for key in alike if self.architectures[key].compute_capability == compute_capability]
        return next(iter(exact or alike), "")

    def trials_of(self, name: str, model: GpuModel, engines: dict[Engine, int]) -> tuple[Trial, ...]:
        """Return what the engines of a GPU would answer to every case in the tables, for a simulated fleet.

        ``name`` is NVML's. Missing engines answer no, as the driver would.
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
    """Return the tables that come with the package."""
    document = read_tables("hardware.toml")
    capabilities = {
        name: {
            key: [dict(zip(Capability.model_fields, row, strict=True)) for row in rows]
            for key, rows in document[name].items()
        }
        for name in ("decodes", "encodes")
    }
    return Hardware.model_validate({**document, **capabilities})
