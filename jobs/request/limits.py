"""The configurable limits for sources. docs/security.md has the reason for each default."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from ...actors.limits import VARIABLE, InputLimits
from .options import Option
from .parts import Part

_DEFAULTS: Final = InputLimits()
_Limit: TypeAlias = Annotated[int, Option("")]


class LimitOptions(Part):
    """The limits for sources. A source that states more than a limit is refused (docs/security.md)."""

    max_pixels: Annotated[
        _Limit,
        Field(ge=1, le=(1 << 31) - 1, description="The most pixels in one picture of a source: docs/security.md."),
    ] = _DEFAULTS.max_pixels
    max_frame_rate: Annotated[
        _Limit, Field(ge=1, le=1_000_000_000, description="Highest nominal frame rate of a source.")
    ] = _DEFAULTS.max_frame_rate
    max_duration_s: Annotated[
        _Limit, Field(ge=1, le=1_000_000_000, description="Longest video track of a source, in seconds.")
    ] = _DEFAULTS.max_duration_s
    max_tracks: Annotated[_Limit, Field(ge=1, le=100_000, description="The most tracks in a source.")] = (
        _DEFAULTS.max_tracks
    )
    max_packets: Annotated[
        _Limit, Field(ge=1, le=10_000_000_000, description="The most packets in a source's video track.")
    ] = _DEFAULTS.max_packets
    max_attachment_bytes: Annotated[
        _Limit, Field(ge=1, le=(1 << 31) - 1, description="Largest file attached to a source, in bytes.")
    ] = _DEFAULTS.max_attachment_bytes
    max_pixels_per_byte: Annotated[
        _Limit,
        Field(
            ge=1,
            le=1_000_000_000_000,
            description="The most pixels in a source's whole video track for each byte of the source.",
        ),
    ] = _DEFAULTS.max_pixels_per_byte


def limit_variables(options: LimitOptions) -> Mapping[str, tuple[str, str]]:
    """Return, for each environment variable, the field that it sets and the field's value."""
    names = [each.name for each in fields(InputLimits)]
    return {f"{VARIABLE}{name.upper()}": (name, str(getattr(options, name))) for name in names}
