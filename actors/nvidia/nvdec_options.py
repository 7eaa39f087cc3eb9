"""How a decoder session is opened: what PyNvVideoCodec's ``CreateDecoder`` may be asked for, and what never is.

docs/nvdec.md has the table. Source: PyNvVideoCodec programming guide section 2.2, and the package's own signature
(2.2.4).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from ...errors import Unsupported
from .option_values import switch, whole_number

__all__ = ["OPTIONS", "PLAIN", "REFUSED", "Latency", "NvdecOptions", "nvdec_options"]


class Latency(Enum):
    """When a picture comes out (``DisplayDecodeLatencyType``).

    Whatever is chosen, a track whose pictures are shown in another order than they are coded in is decoded in NATIVE
    alone: the others are made for those that are not reordered.
    """

    NATIVE = "native"
    """Some four packets late, in the order of presentation."""
    LOW = "low"
    """As soon as the order of presentation is certain."""
    ZERO = "zero"
    """With its own packet, in the order of decoding. The package gives such pictures no times: they are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvdecOptions:
    """What is asked of a session beside decoding; sessions with other options are other sessions.

    ``largest`` is the (width, height) up to which a session may be turned to another size (``maxwidth`` and
    ``maxheight``), whose memory it takes from the beginning; None is for one size alone. Turning rests on the driver's
    cuvidReconfigureDecoder, which was run on the simulator and not yet on a GPU, so nothing asks for it by itself.

    ``sei_messages`` and ``statistics`` come with each picture (``PictureNotes``).

    Raises:
        Unsupported: ``largest`` is no size of a surface.
    """

    latency: Latency = Latency.NATIVE
    largest: tuple[int, int] | None = None
    sei_messages: bool = False
    statistics: bool = False

    def __post_init__(self) -> None:
        if self.largest is not None and any(side <= 0 or side % 2 for side in self.largest):
            message = f"NVDEC's surfaces have even sides, and the largest is to be {self.largest[0]}x{self.largest[1]}"
            raise Unsupported(message, "Give maxwidth and maxheight even numbers, both or neither.")

    @property
    def has_notes(self) -> bool:
        """Whether anything comes with a picture."""
        return self.sei_messages or self.statistics

    def arguments(self, module: Any) -> dict[str, Any]:  # noqa: ANN401 - publishes no types
        """Return what ``CreateDecoder`` of ``PyNvVideoCodec`` is given; what it does by itself is left out."""
        found: dict[str, Any] = {}
        if self.latency is not Latency.NATIVE:
            found["latency"] = getattr(module.DisplayDecodeLatencyType, self.latency.name)
        if self.largest is not None:
            found["maxwidth"], found["maxheight"] = self.largest
        if self.sei_messages:
            found["enableSEIMessage"] = True
        if self.statistics:
            found["enableDecodeStats"] = True
        return found


PLAIN: Final = NvdecOptions()
"""What a session is opened with where nobody asks for more."""
_OURS: Final = "Leave it out."
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "gpuid": ("a worker sees one GPU, which is number 0", "CUDA_VISIBLE_DEVICES chooses it."),
    "codec": ("it is the track's", _OURS),
    "cudacontext": ("it is the worker's", "Open the device with a context of your own."),
    "cudastream": ("each session has one of its own", "Give NvdecSession a stream."),
    "usedevicememory": (
        "surfaces are the device's, and codecfleet copies them faster than the package does",
        "Choose whether pictures come to the host: Gpu.pictures, or stay on the device: Gpu.surfaces.",
    ),
    "outputColorType": (
        "RGB is not what a software decoder gives",
        "Take native pictures, and convert them where they are used.",
    ),
    "bWaitForSessionWarmUp": (
        "every session would wait for as many as were announced, and a pool opens them one after the other",
        _OURS,
    ),
    "enableasyncallocations": ("PyNvVideoCodec 2.2.4 loses eight pictures' memory with every decoder", _OURS),
}
"""Parameters of ``CreateDecoder`` that are refused by name: why, and what to do instead."""


def nvdec_options(options: Mapping[str, str]) -> NvdecOptions:
    """Return the options that pairs of strings name, by the parameters of ``CreateDecoder``.

    ``latency`` is native, low or zero; ``maxwidth`` and ``maxheight`` are pixels; switches are 0 or 1.

    Raises:
        Unsupported: a name is refused or unknown, or a value is not one of the option's; the message names it.
    """
    values = {name: _parsed(name, text) for name, text in options.items()}
    sides = values.get("maxwidth", 0), values.get("maxheight", 0)
    return NvdecOptions(
        latency=values.get("latency", Latency.NATIVE),
        largest=None if sides == (0, 0) else sides,
        sei_messages=values.get("enableSEIMessage", False),
        statistics=values.get("enableDecodeStats", False),
    )


def _parsed(name: str, text: str) -> Any:  # noqa: ANN401 - whatever the option is
    if name in REFUSED:
        reason, step = REFUSED[name]
        message = f"NVDEC option {name}: {reason}"
        raise Unsupported(message, step)
    if name not in OPTIONS:
        near = next(iter(get_close_matches(name, OPTIONS, n=1)), "")
        message = f"NVDEC has no option {name}"
        raise Unsupported(message, f"Write {near}." if near else f"It has {', '.join(OPTIONS)}.")
    try:
        return OPTIONS[name](text)
    except ValueError as error:
        message = f"NVDEC option {name}={text}: {error}"
        raise Unsupported(message, "See docs/nvdec.md for what it takes.") from None


def _latency(text: str) -> Latency:
    found = next((each for each in Latency if each.value == text), None)
    if found is None:
        message = f"not one of {', '.join(each.value for each in Latency)}"
        raise ValueError(message)
    return found


OPTIONS: Final[Mapping[str, Callable[[str], object]]] = {
    "latency": _latency,
    "maxwidth": whole_number,
    "maxheight": whole_number,
    "enableSEIMessage": switch,
    "enableDecodeStats": switch,
}
"""Parameters of ``CreateDecoder`` that may be given, and how each is read."""
