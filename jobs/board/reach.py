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
        """
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
