"""Kinds of devices and routes over them, a row each. Other code reads a row's fields, and compares no members."""

from enum import Enum
from typing import Final, Self

from .engines import Engine


class Route(Enum):
    """The path of a segment's frames, all on one host: which engine decodes them, and which one is next."""

    _value_: str
    decoder: Engine
    encoder: Engine
    why: str  # a lane's reason, to be formatted with the decoded codec and the encoders, or the number of the DLA

    GPU = (
        *("gpu", Engine.NVDEC, Engine.NVENC),
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
        """Whether only the processor takes part."""
        return self.decoder is self.encoder

    @property
    def seat(self) -> str:
        """The seat of the workers that serve it."""
        return _SEATS[self]


class _Row:
    """The common properties of all devices of a kind."""

    def __init__(
        self,
        *,
        seat: str,
        title: str,
        engines: frozenset[Engine],
        routes: tuple[Route, ...],
        is_processor: bool = False,
        takes_gpu: bool = False,
        runs_networks: bool = False,
        is_slice: bool = False,
        is_guest: bool = False,
        is_integrated: bool = False,
    ) -> None:
        self.seat = seat  # the beginning of its workers' stations' names; one kind of each seat has the seat's name
        self.title = title  # displayed for a device without a name of its own
        self.engines = engines  # engines that it may have
        self.routes = routes  # routes that it may serve; one seat serves each route
        self.is_processor = is_processor  # it runs software alone
        self.takes_gpu = takes_gpu  # Ray reserves a share of a GPU for its worker, and chooses the GPU
        self.runs_networks = runs_networks  # its station is named after it; it never transcodes
        self.is_slice = is_slice  # part of a GPU, its ``parent``; NVML counts its engines
        self.is_guest = is_guest  # its UUID changes, a licence limits it, its percentages may refer to the whole GPU
        self.is_integrated = is_integrated  # its memory is the host's


def _gpu(*, is_slice: bool = False, is_guest: bool = False, is_integrated: bool = False) -> _Row:
    return _Row(
        seat="gpu",
        title="GPU",
        engines=frozenset({Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA}),
        routes=(Route.GPU, Route.HYBRID, Route.UPLOAD),
        takes_gpu=True,
        is_slice=is_slice,
        is_guest=is_guest,
        is_integrated=is_integrated,
    )


_CPU: Final = _Row(
    seat="cpu", title="processor", engines=frozenset({Engine.CPU}), routes=(Route.CPU,), is_processor=True
)
_DLA: Final = _Row(seat="dla", title="DLA", engines=frozenset({Engine.DLA}), routes=(Route.DLA,), runs_networks=True)


class DeviceKind(_Row, Enum):
    """A kind of device; its value is its name in reports and metrics."""

    _value_: str

    CPU = "cpu", _CPU  #: the host's processor
    GPU = "gpu", _gpu()  #: a whole GPU: bare metal, or passed through to this machine
    MIG = "mig", _gpu(is_slice=True)  #: one MIG instance
    VGPU = "vgpu", _gpu(is_guest=True)  #: a vGPU seen from its guest
    IGPU = "igpu", _gpu(is_integrated=True)  #: the GPU of a Tegra SoC
    DLA = "dla", _DLA  #: one DLA of a Tegra SoC

    def __new__(cls, name: str, _row: _Row) -> Self:
        """Make a member, whose value is its name."""
        kind = object.__new__(cls)
        kind._value_ = name
        return kind

    def __init__(self, _name: str, row: _Row) -> None:
        """Copy the fields of its row."""
        super().__init__(**vars(row))


SEATS: Final = {kind.seat: kind for kind in DeviceKind if kind.value == kind.seat}
"""The kind that each seat is named after."""
_SEATS: Final = {route: kind.seat for kind in DeviceKind for route in kind.routes}
