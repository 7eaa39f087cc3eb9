"""How a decoder session is opened: what PyNvVideoCodec's ``CreateDecoder`` is asked for beside its defaults.

docs/nvdec.md has the table, with the parameters that are never given. Source: PyNvVideoCodec programming guide section
2.2, and the package's own signature (2.2.4).
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ...errors import UsageError

__all__ = ["PLAIN", "Latency", "NvdecOptions"]

Latency: TypeAlias = Literal["native", "low", "zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvdecOptions:
    """What ``frames`` asks of NVDEC's sessions; sessions with other options are other sessions.

    Args:
        latency: when a picture comes out (``DisplayDecodeLatencyType``): "native" some four packets late, "low" as soon
            as the order of presentation is certain, "zero" with its own packet. The latter two are for tracks whose
            pictures are shown in the order in which they are coded.
        largest: the (width, height) up to which a session changes to another size of a track without a new decoder
            (``maxwidth`` and ``maxheight``), whose memory it takes from the beginning; None is for one size alone. It
            rests on the driver's cuvidReconfigureDecoder, which ran on the simulator and not yet on a GPU.
        sei_messages: give each frame its SEI messages (``Frame.notes``).
        statistics: give each frame its decode statistics (``Frame.notes``).

    Raises:
        UsageError: ``latency`` is none, or ``largest`` is no size of a surface.
    """

    latency: Latency = "native"
    largest: tuple[int, int] | None = None
    sei_messages: bool = False
    statistics: bool = False

    def __post_init__(self) -> None:
        if self.latency not in get_args(Latency):
            message = f"latency {self.latency!r} is none of {', '.join(get_args(Latency))}"
            raise UsageError(message, "Leave it out for native.")
        if self.largest is not None and any(side <= 0 or side % 2 for side in self.largest):
            message = f"NVDEC's surfaces have even sides, and the largest is to be {self.largest[0]}x{self.largest[1]}"
            raise UsageError(message, "Give (width, height) in even numbers.")

    @property
    def has_notes(self) -> bool:
        """Whether anything comes with a picture."""
        return self.sei_messages or self.statistics

    @property
    def keeps_coding_order(self) -> bool:
        """Whether pictures come out before the ones behind them are fed, which reordering rules out."""
        return self.latency != "native"


PLAIN: Final = NvdecOptions()
"""What a session is opened with where nobody asks for more."""
