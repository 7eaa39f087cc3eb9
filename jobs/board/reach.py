"""What a job's work carries so that every node reads the right source: its version, and how it is shipped."""

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
    """How the workers of ``pool`` come to a source with that ``stamp``.

    With ``ship`` a local source is read through this machine where a node does not see it; without, such a node fails.
    """

    pool: Pool
    stamp: SourceStamp
    ship: bool = False

    async def bind(self, work: Work[ResultT]) -> Work[ResultT]:
        """Return work that reads the source, if it does, in this version and, if need be, as it is shipped.

        Raises:
            InputUnreadable: the source is gone.
            FleetUnavailable: nothing can be started that would read it for others.
        """
        if isinstance(work, EncodeAudio):
            return cast("Work[ResultT]", replace(work, version=self.stamp.anywhere, shipment=await self._shipment()))
        reading: Any = work
        if isinstance(decode := getattr(work, "decode", None), DecodeRange):
            reading = replace(
                reading, decode=replace(decode, version=self.stamp.anywhere, shipment=await self._shipment())
            )
        return cast("Work[ResultT]", reading)

    async def _shipment(self) -> RayShipment | None:
        if not self.ship or not is_local(self.stamp.source):
            return None
        address = await self.pool.files_address()
        return await in_thread(shipment_of, self.stamp.source, address) if address else None
