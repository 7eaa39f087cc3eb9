"""The objects through which a caller reads a film's frames from a fleet."""

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from fractions import Fraction
from os import PathLike, fspath
from typing import Literal, TypedDict

from ...actors.media.location import absolute
from ...actors.tensors.frame_batch import FrameBatch
from ...actors.tensors.tensor_format import TensorFormat
from ...cluster.fleet.pool import Pool
from ...cluster.worker.own_gpu import own_gpu
from ...errors import UsageError
from ..board.threads import in_thread
from ..frames.chosen import Film
from ..frames.request import FrameRequest
from ..frames.selection import FrameChooser, PartFrames
from ..request.options import build
from .plan import BatchPlan
from .run import batches_of


class FleetFrameOptions(TypedDict, total=False):
    """The options of ``Fleet.frames``: those options of ``frames`` that apply on any machine."""

    start_s: Fraction | int | str | None
    end_s: Fraction | int | str | None
    video_track: int
    every: int
    decoder: Literal["auto", "software", "nvdec"]
    strict: bool


class FleetSelection:
    """Chosen frames of a film, decoded by a fleet, in the order requested."""

    def __init__(self, film: "FleetFrames", choose: Callable[[PartFrames], Sequence[int]]) -> None:
        self._film = film
        self._choose = choose

    def batches(
        self,
        frames: int,
        format: TensorFormat | None = None,  # noqa: A002 - the name in ``FrameSelection``
    ) -> AsyncGenerator[FrameBatch]:
        """Iterate over the frames in tensors of ``frames`` frames, on the host; the last tensor may have fewer.

        Workers make several tensors at once, a limited number ahead of the caller. If you stop early, close the
        iterator (``contextlib.aclosing``), which ends the work on workers.

        Raises:
            UsageError: ``frames`` is below 1.

        Iterating raises NoSuchFrame, the errors of decoding, and UsageError: a batch has more than 64 MiB. The error of
        a frame is raised after the batches before that frame.
        """
        if frames < 1:
            raise UsageError(f"a batch needs at least one frame: {frames}", "Give 1 or more.")
        return self._film.batches_of(self._choose, frames, TensorFormat() if format is None else format)


class FleetFrames(FrameChooser[FleetSelection]):
    """The frames of a source, all or chosen ones, in batches that a fleet's workers make.

        film = fleet.frames("s3://bucket/film.mp4")
        async for batch in film[::10].batches(16, TensorFormat(size=(224, 224))): ...

    This process reads the source's index once, at the first use.
    """

    def __init__(self, request: FrameRequest, pool: Pool) -> None:
        self._pool = pool
        self._name = secrets.token_hex(8)
        self._request = request
        self._film = Film(request.model_copy(update={"decoder": "software"}), own_gpu)  # for its index

    def __getitem__(self, chosen: slice, /) -> FleetSelection:
        return self._select(lambda part: range(len(part))[chosen])

    def batches(
        self,
        frames: int,
        format: TensorFormat | None = None,  # noqa: A002 - the name in ``FrameSelection``
    ) -> AsyncGenerator[FrameBatch]:
        """Iterate over all frames; see ``FleetSelection.batches``."""
        return self[:].batches(frames, format)

    async def count(self) -> int:
        """Return how many frames the film has according to its index."""
        return len((await in_thread(lambda: self._film.source)).part)

    @property
    def times_s(self) -> list[Fraction]:
        """When each frame is shown, in seconds after the source's first picture; the same as ``FrameStream.times_s``.

        In an event loop, use ``await count()`` first, which reads the index.
        """
        return self._film.times_s

    def batches_of(
        self, choose: Callable[[PartFrames], Sequence[int]], frames: int, format_: TensorFormat
    ) -> AsyncGenerator[FrameBatch]:
        """Iterate over the batches of the frames at the positions that ``choose`` returns."""

        def plan() -> BatchPlan:
            source = self._film.source
            source.stamp.check_local()
            planned = BatchPlan(
                job=secrets.token_hex(4),
                film=self._name,
                request=self._request,
                source=source,
                positions=choose(source.part),
                frames=frames,
                format=format_,
            )
            planned.check()
            return planned

        return batches_of(self._pool, plan)

    def _select(self, choose: Callable[[PartFrames], Sequence[int]]) -> FleetSelection:
        return FleetSelection(self, choose)


def fleet_request(source: object, options: Mapping[str, object]) -> FrameRequest:
    """Return the request for a fleet's frames.

    Raises UsageError: workers cannot open such a source, or an option is invalid or does not apply to a fleet.
    """
    path = fspath(source) if isinstance(source, PathLike) else source
    if not isinstance(path, str):
        message = f"workers cannot read this {type(source).__name__}"
        raise UsageError(
            message, "Give a path or URL that all workers can open, or use codecfleet.frames in this process."
        )
    if others := sorted(set(options) - FleetFrameOptions.__annotations__.keys()):
        message = f"`Fleet.frames` does not accept {', '.join(others)}"
        raise UsageError(message, "docs/learning.md lists the options.")
    fields = {"source": absolute(path), "place": "auto", "threads": 1, **options}
    return build(FrameRequest, fields, str, "docs/learning.md lists the options.")
