"""What a child process of the tests runs: decoder sessions of the product on the real package, printed as JSON.

The one argument is a msgpack file with ``jobs``: each has a ``codec`` and a ``pix_fmt`` (FFmpeg's names), ``options``
by the names of ``NvdecOptions``, and ``ranges`` of (width, height, [data, pts] packets). A job's ranges are all fed to
one session. The answer of a job is a list of [pts, MD5 of the surface, [SEI type, ...], packets fed before it came] per
range, or the error.
"""

import json
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import msgpack
import PyNvVideoCodec
from cuda.bindings import driver

from codecfleet.actors.decode.nvdec_options import NvdecOptions
from codecfleet.actors.nvidia.convert.device_pictures import CudaMover, PicturePool, SurfaceKeeper
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.nvidia.nvdec.session import NvdecSession, SessionKey
from codecfleet.actors.surfaces.device_frame import DevicePicture, PictureNotes
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.errors import DeviceError
from codecfleet.testing.nvidia.surface_decoder import surface_of


class Runner:
    """Feeds ranges to sessions."""

    def __init__(self) -> None:
        self.cuda = Cuda(driver)
        self.memory = PicturePool(self.cuda)
        self.mover = CudaMover(self.cuda, PinnedMemory(self.cuda), self.memory)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one job."""
        options = NvdecOptions(**job["options"])
        answer: dict[str, Any] = {"ranges": [], "error": ""}
        session = NvdecSession(PyNvVideoCodec, self.cuda, self.key(job, job["ranges"][0], options))
        try:
            for range_ in job["ranges"]:
                answer["ranges"].append(self.fed(session, self.key(job, range_, options), range_[2]))
        except DeviceError as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        session.close()
        return answer

    @staticmethod
    def key(job: dict[str, Any], range_: list[Any], options: NvdecOptions) -> SessionKey:
        """Return what a range wants."""
        surface = surface_format(job["pix_fmt"])
        assert surface is not None
        return SessionKey(job["codec"], job["pix_fmt"], surface, range_[0], range_[1], options)

    def fed(self, session: NvdecSession, key: SessionKey, packets: list[tuple[bytes, int]]) -> list[list[object]]:
        """Feed a range, and return what came of it."""
        session.turn_to(key)
        reader = session.reader(self.keeper)
        found: list[tuple[int, int, DevicePicture]] = []
        for fed, (data, pts) in enumerate(packets, start=1):
            found += [(fed, *each) for each in session.feed(data, pts, reader)]
        found += [(len(packets) + 1, *each) for each in session.flush(reader)]
        return [[ticket, self.digest(picture), self.kinds(picture), fed] for fed, ticket, picture in found]

    def keeper(self, key: SessionKey) -> SurfaceKeeper:
        """Make a reader that leaves pictures on the device."""
        return SurfaceKeeper(self.cuda, self.memory, key)

    def digest(self, picture: DevicePicture) -> str:
        """Return the MD5 of a picture's surface."""
        surface = surface_of(self.mover.to_host(picture), picture.format)
        return md5(surface.tobytes(), usedforsecurity=False).hexdigest()

    @staticmethod
    def kinds(picture: DevicePicture) -> list[int]:
        """Return the types of a picture's SEI messages."""
        notes = picture.opaque
        return [message.kind for message in notes.sei_messages] if isinstance(notes, PictureNotes) else []


def main() -> None:
    """Run all jobs."""
    jobs = msgpack.unpackb(Path(sys.argv[1]).read_bytes())["jobs"]
    runner = Runner()
    sys.stdout.write(f"\n{json.dumps([runner.run(job) for job in jobs])}\n")


if __name__ == "__main__":
    main()
