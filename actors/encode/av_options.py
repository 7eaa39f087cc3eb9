"""Options of an encoder that is open, by FFmpeg's AVOption interface: PyAV sets them only before."""

from typing import TYPE_CHECKING, Final

from ..media.av_abi import context_address, ffmpeg

if TYPE_CHECKING:
    from av.codec.context import CodecContext

_SEARCH_CHILDREN: Final = 1  # AV_OPT_SEARCH_CHILDREN: the encoder's own options too


def set_option(context: "CodecContext", name: str, value: str) -> None:
    """Set an option; ``ValueError`` if the encoder has none of that name or does not take the value."""
    code = ffmpeg().av_opt_set(context_address(context), name.encode(), value.encode(), _SEARCH_CHILDREN)
    if code < 0:
        raise ValueError(f"FFmpeg does not set {name}={value} (error {code})")
