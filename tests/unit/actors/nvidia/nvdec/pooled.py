"""Keys and fake sessions for tests of NVDEC's pool."""

from dataclasses import dataclass

from codecfleet.actors.nvidia.nvdec.session import SessionKey
from codecfleet.actors.surfaces.formats import surface_format


def key(codec: str = "h264", width: int = 64) -> SessionKey:
    """Return the key of a session."""
    surface = surface_format("yuv420p")
    assert surface is not None
    return SessionKey(codec, "yuv420p", surface, width, 64)


@dataclass(eq=False)
class Session:
    """A fake session that records the calls."""

    key: SessionKey
    is_clean: bool = True
    primed_with: bytes = b""
    closed: int = 0
    is_in_use: bool = False

    def prime(self, first: bytes) -> None:
        """Note it."""
        self.primed_with = first

    def close(self) -> None:
        """Note it."""
        assert not self.is_in_use
        self.closed += 1
