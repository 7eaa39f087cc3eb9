"""Kinds of devices, and the routes of frames through them.

Other code reads fields of a kind instead of comparing kinds.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from .engines import Engine


class Route(Enum):
    """The path of a segment's frames on one host: the engine that decodes them, and the engine that follows."""

    _value_: str
    decoder: Engine
    encoder: Engine
    why: str  # the text of a lane's reason; each {} is replaced by a codec or encoder, or by the DLA's number

    GPU = (
        *("gpu", Engine.NVDEC, Engine.NVENC),
        "NVDEC decodes {} and {} encodes on the same device, so no picture leaves it",
    )
    HYBRID = (
        *("hybrid", Engine.NVDEC, Engine.CPU),
        "NVDEC decodes {} and the host's processor encodes with {}, because the track must use that encoder",
    )
    CPU = "cpu", Engine.CPU, Engine.CPU, "the processor decodes {} and encodes with {}"
    UPLOAD = "upload", Engine.CPU, Engine.NVENC, "the host's processor decodes {}, and {} encodes on the device"
    DLA = "dla", Engine.CPU, Engine.DLA, "the processor decodes, and the network runs on DLA {}"

    def __new__(cls, name: str, decoder: Engine, encoder: Engine, why: str) -> Self:
        """Create a member whose value is the name."""
        route = object.__new__(cls)
        route._value_, route.decoder, route.encoder, route.why = name, decoder, encoder, why
        return route

    @property
    def is_software(self) -> bool:
        """Whether the route uses only the processor."""
        return self.decoder is self.encoder

    @property
    def seat(self) -> str:
        """The prefix of the names of the stations that serve this route: ``DeviceKind.seat``."""
        return _SEATS[self]


@dataclass(kw_only=True, eq=False, repr=False)
class _Row:
    """The properties that all devices of a kind share."""

    seat: str  # the prefix of station names; several kinds may have the same seat
    title: str  # the name shown for a device that has no name
    engines: frozenset[Engine]  # engines that the device may have
    routes: tuple[Route, ...]  # routes that the device may serve; each route belongs to one seat
    is_processor: bool = False  # whether the device only runs software
    takes_gpu: bool = False  # whether Ray reserves a share of a GPU for each worker and chooses the GPU
    runs_networks: bool = False  # whether the device runs networks and never transcodes
    is_slice: bool = False  # whether the device is a part of a GPU, its ``parent``
    is_guest: bool = False  # whether the device is a vGPU, with a changing UUID and a licence
    is_integrated: bool = False  # whether the device uses the host's memory


_GPU: Final = _Row(
    seat="gpu",
    title="GPU",
    engines=frozenset({Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA}),
    routes=(Route.GPU, Route.HYBRID, Route.UPLOAD),
    takes_gpu=True,
)
_CPU: Final = _Row(
    seat="cpu", title="processor", engines=frozenset({Engine.CPU}), routes=(Route.CPU,), is_processor=True
)
_DLA: Final = _Row(seat="dla", title="DLA", engines=frozenset({Engine.DLA}), routes=(Route.DLA,), runs_networks=True)


class DeviceKind(_Row, Enum):
    """A kind of device; its value is its name in reports and metrics."""

    _value_: str

    CPU = "cpu", _CPU  #: the host's processor
    GPU = "gpu", _GPU  #: a whole GPU, on bare metal or passed through to this machine
    MIG = "mig", replace(_GPU, is_slice=True)  #: one MIG instance
    VGPU = "vgpu", replace(_GPU, is_guest=True)  #: a vGPU, as the guest sees it
    IGPU = "igpu", replace(_GPU, is_integrated=True)  #: the GPU of a Tegra SoC
    DLA = "dla", _DLA  #: one DLA of a Tegra SoC

    def __new__(cls, name: str, _row: _Row) -> Self:
        """Create a member whose value is the name."""
        kind = object.__new__(cls)
        kind._value_ = name
        return kind

    def __init__(self, _name: str, row: _Row) -> None:
        """Copy the fields of the kind's row."""
        super().__init__(**vars(row))


SEATS: Final = {kind.seat: kind for kind in DeviceKind if kind.value == kind.seat}
"""The kind of device after which each seat is named."""
_SEATS: Final = {route: kind.seat for kind in DeviceKind for route in kind.routes}
