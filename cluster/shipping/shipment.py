"""The shipment through which workers on other machines read a job's source."""

from dataclasses import dataclass

from ...actors.media.location import local_path
from ...actors.media.stores import Shipment, changed_meanwhile, content_mark, shipped_version


@dataclass(frozen=True, slots=True)
class RayShipment(Shipment):
    """A file that workers on other machines read through a ``FileReader``, an actor on the file's machine."""

    def prepare(self) -> None:
        """Register shipped files with fsspec."""
        from .files import register

        register()


def shipment_of(source: str, address: str) -> RayShipment:
    """Return the shipment of a local source, whose reader is at ``address``.

    Raises InputUnreadable if the source does not exist.
    """
    from .files import shipped_url

    path = local_path(source).absolute()
    version = shipped_version(str(path))
    try:
        mark = content_mark(str(path))
    except OSError:
        raise changed_meanwhile(source) from None
    return RayShipment(shipped_url(address, str(path)), version, mark)
