"""Binds work to its source, so that every node reads the same version, and ships the source to nodes that lack it."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ...actors.decode.decoding import DecodeRange
from ...actors.device.work import Work
from ...actors.media.location import is_local
from ...actors.tracks.audio import EncodeAudio
from ...cluster.fleet.pool import Pool
from ...cluster.shipping.shipment import RayShipment, shipment_of
from ..source.source import SourceStamp
from .threads import in_thread

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class SourceReach:
    """How a pool's workers read a source.

    With ``ship``, nodes that cannot see the source read it through this machine.
    """

    pool: Pool
    stamp: SourceStamp
    ship: bool = False

    async def bind(self, work: Work[ResultT]) -> Work[ResultT]:
        """Return ``work`` bound to this version of the source. Raises InputUnreadable: the source no longer exists."""
        reading: Any = work
        decode = getattr(work, "decode", None)
        if not isinstance(work, EncodeAudio) and not isinstance(decode, DecodeRange):
            return work
        shipment = await self._shipment()
        read: dict[str, Any] = {"version": self.stamp.anywhere, "shipment": shipment}
        parts = read if isinstance(work, EncodeAudio) else {"decode": replace(reading.decode, **read)}
        return cast("Work[ResultT]", replace(reading, ships=shipment is not None, **parts))

    async def _shipment(self) -> RayShipment | None:
        if not self.ship or not is_local(self.stamp.source):
            return None
        while (address := (state := self.pool.state).files_address) is None:
            await state.changed.wait()
        return await in_thread(shipment_of, self.stamp.source, address) if address else None
