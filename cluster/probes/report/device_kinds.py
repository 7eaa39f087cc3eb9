"""Kinds of devices and routes over them, a row each. Other code reads the fields of a row, and compares no member."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from .engines import Engine


class Route(Enum):
    """How a segment's frames travel, all on one host: which engine decodes them, and which takes them then."""

    _value_: str
    decoder: Engine
    encoder: Engine
    why: str  # a lane's reason: the decoded codec and the encoders fill it in, or the number of the DLA

    GPU = (
        "gpu",
        Engine.NVDEC,
        Engine.NVENC,
        "NVDEC decodes {} and {} encodes on the same device, so no picture leaves it",
    )
    HYBRID = (
        *("hybrid", Engine.NVDEC, Engine.CPU),
        "NVDEC decodes {} and the host's processor encodes with {}, which the track is bound to",
    )
    CPU = "cpu", Engine.CPU, Engine.CPU, "the processor decodes {} and encodes with {}"
    UPLOAD = "upload", Engine.CPU, Engine.NVENC, "the host's processor decodes {}, and {} encodes on the device"
    DLA = "dla", Engine.CPU, Engine.DLA, "the processor decodes, and the network runs on DLA {}"

    def __new__(cls, name: str, decoder: Engine, encoder: Engine, why: str) -> Self:
        """Make a row, whose value is its name."""
        route = object.__new__(cls)
        route._value_, route.decoder, route.encoder, route.why = name, decoder, encoder, why
        return route

    @property
    def is_software(self) -> bool:
        """Whether no engine but the processor takes part."""
        return self.decoder is self.encoder

    @property
    def seat(self) -> str:
        """The seat of the workers that serve it."""
        return _SEATS[self]


@dataclass(eq=False, repr=False, kw_only=True)
class _Row:
    """What all devices of a kind have in common."""

    seat: str  # begins the names of its workers' stations; kinds that share it share stations; one has it as its name
    title: str  # what people call a device that has no name of its own
    engines: frozenset[Engine]  # those that it may have
    routes: tuple[Route, ...]  # those that it may serve
    is_processor: bool = False  # it runs software alone
    takes_gpu: bool = False  # Ray reserves a share of a GPU for its worker, and chooses the GPU
    runs_networks: bool = False  # its station is named after it; it never transcodes
    is_slice: bool = False  # of a GPU, which is its ``parent``; NVML counts its engines
    is_guest: bool = False  # its UUID changes, a licence limits it, its percentages may be of the whole GPU
    is_integrated: bool = False  # its memory is the host's


_CPU: Final = _Row(
    seat="cpu", title="processor", engines=frozenset({Engine.CPU}), routes=(Route.CPU,), is_processor=True
)
_GPU: Final = _Row(
    seat="gpu",
    title="GPU",
    engines=frozenset({Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA}),
    routes=(Route.GPU, Route.HYBRID, Route.UPLOAD),
    takes_gpu=True,
)
_DLA: Final = _Row(seat="dla", title="DLA", engines=frozenset({Engine.DLA}), routes=(Route.DLA,), runs_networks=True)


class DeviceKind(_Row, Enum):
    """A kind of device; its value is its name in reports and metrics."""

    _value_: str

    CPU = "cpu", _CPU  #: the host's processor
    GPU = "gpu", _GPU  #: a whole GPU: bare metal, or passed through to this machine
    MIG = "mig", replace(_GPU, is_slice=True)  #: one MIG instance
    VGPU = "vgpu", replace(_GPU, is_guest=True)  #: a vGPU seen from its guest
    IGPU = "igpu", replace(_GPU, is_integrated=True)  #: the GPU of a Tegra SoC
    DLA = "dla", _DLA  #: one DLA of a Tegra SoC

    def __new__(cls, name: str, _row: _Row) -> Self:
        """Make a member, whose value is its name."""
        kind = object.__new__(cls)
        kind._value_ = name
        return kind

    def __init__(self, _name: str, row: _Row) -> None:
        """Take over the fields of its row."""
        super().__init__(**vars(row))


SEATS: Final = {kind.seat: kind for kind in DeviceKind if kind.value == kind.seat}
"""The kind that each seat is named after."""
_SEATS: Final = {route: kind.seat for kind in DeviceKind for route in kind.routes}
