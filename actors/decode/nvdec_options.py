"""The parameters of PyNvVideoCodec's ``CreateDecoder`` (programming guide 2.2, and the signature in 2.2.4).

docs/nvidia/pynvvideocodec.md has a table of all parameters.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ...errors import UsageError

Latency: TypeAlias = Literal["native", "low", "zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvdecOptions:
    """Options of NVDEC sessions for ``frames``; sessions are shared only between work with equal options.

    Args:
        latency: when a picture is output (``DisplayDecodeLatencyType``): with "native", about four packets late; with
            "low", as soon as the order of presentation is certain; with "zero", together with its own packet. "low" and
            "zero" are for tracks whose pictures are shown in coding order.
        largest: the (width, height) up to which a session changes size within a track without a new decoder
            (``maxwidth`` and ``maxheight``); memory for that size is allocated from the beginning. None allows one
            size. This option uses the driver's cuvidReconfigureDecoder, which was tested on the simulator, but not yet
            on a GPU.
        sei_messages: give each frame its SEI messages (``Frame.notes``).
        statistics: give each frame its decode statistics (``Frame.notes``).

    Raises:
        UsageError: ``latency`` is unknown, or a side of ``largest`` is odd or below 2.
    """

    latency: Latency = "native"
    largest: tuple[int, int] | None = None
    sei_messages: bool = False
    statistics: bool = False

    def __post_init__(self) -> None:
        if self.latency not in get_args(Latency):
            message = f"latency {self.latency!r} is not one of {', '.join(get_args(Latency))}"
            raise UsageError(message, "Use one of these values, or leave latency out.")
        if self.largest is not None and any(side <= 0 or side % 2 for side in self.largest):
            message = f"NVDEC's surfaces have even sides, not {self.largest[0]}x{self.largest[1]}"
            raise UsageError(message, "Give (width, height) in even numbers.")

    @property
    def has_notes(self) -> bool:
        """Whether pictures carry their SEI messages or decode statistics (``Frame.notes``)."""
        return self.sei_messages or self.statistics

    @property
    def keeps_coding_order(self) -> bool:
        """Whether each picture is output before the next packet is fed, which excludes reordering."""
        return self.latency != "native"


PLAIN: Final = NvdecOptions()
"""The default options."""
