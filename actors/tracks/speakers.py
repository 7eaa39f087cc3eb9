"""The speakers of a layout, and the layouts that an encoder can signal, all named as in FFmpeg."""

from functools import cache
from typing import Final

from av.audio.layout import AudioLayout

_USUAL: Final = {
    1: "mono",
    2: "stereo",
    3: "3.0",
    4: "4.0",
    5: "5.0",
    6: "5.1",
    7: "6.1",
    8: "7.1",
    10: "5.1.4",
    12: "7.1.4",
    14: "9.1.4",
    16: "hexadecagonal",
    24: "22.2",
}
"""The usual layout of each number of channels."""
_READ_OTHERWISE: Final = "3 channels"
"""The unnamed layout for which FFmpeg's resampler assumes an unusual layout, 2.1."""
MIXED: Final = {1: "mono", 2: "stereo"}
"""The layouts to which a track can be mixed, by number of channels."""
STATED: Final = {
    "aac": ("mono", "stereo", "2.1", "3.0", "3.0(back)", "4.0", "quad", "5.0", "5.1", "7.1"),
    "opus": ("mono", "stereo", "3.0", "quad", "5.0", "5.1", "6.1", "7.1"),
}
"""The layouts whose speakers a decoder recovers from each encoder's output. AAC: the channel configurations, and the
program configs for which FFmpeg's decoder finds names (measured). Opus: one layout for each number of channels (RFC
7845, 5.1.1.2).
"""
_ORDERS: Final = {
    ("opus", "5.0"): ("FL", "FR", "BR", "FC", "BL"),
    ("opus", "6.1"): ("FL", "FR", "BC", "LFE", "SL", "FC", "SR"),
}
"""The orders that undo an error in FFmpeg's wrapper of libopus, which reorders channels by the inverse order."""
_BACK: Final = {"SL": "BL", "SR": "BR"}


def is_unnamed(layout: str) -> bool:
    """Return whether a layout states only the number of channels, and no speakers."""
    return layout.endswith((" channels", " channel"))


def usual_layout(layout: str) -> str:
    """Return the usual layout with as many channels; ``layout`` itself if it names speakers, or if none is usual."""
    return _USUAL.get(AudioLayout(layout).nb_channels, layout) if is_unnamed(layout) else layout


@cache
def speakers(layout: str) -> tuple[str, ...]:
    """Return the names of a layout's speakers; all are FC if none are named and the number is unusual."""
    named = usual_layout(layout)
    channels = AudioLayout(named).channels
    return ("FC",) * len(channels) if is_unnamed(named) else tuple(channel.name for channel in channels)


def encoder_order(codec: str, layout: str) -> tuple[str, ...]:
    """Return the order in which an encoder must be given the speakers of a layout."""
    return _ORDERS.get((codec, layout), speakers(layout))


def is_same_room(layout: str, target: str, order: tuple[str, ...]) -> bool:
    """Return whether channels need no mixing: ``order`` has the same speakers, but surrounds may be at side or back."""
    names = speakers(layout)
    at_back, wanted = (tuple(_BACK.get(name, name) for name in each) for each in (names, order))
    is_same = names == order or (len(set(at_back)) == len(names) and at_back == wanted)
    return is_same and order == speakers(target) and layout != _READ_OTHERWISE
