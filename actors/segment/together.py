"""Several renditions of one segment: it is decoded once, and encoded for each of them."""

from dataclasses import dataclass

from ...errors import UsageError
from ..device.work import Work, WorkContext
from .encoding import EncodedSegment, EncodeSegment, encode_each


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeTogether(Work[tuple[EncodedSegment, ...]]):
    """Decode a segment once, and encode it for several renditions.

    The results equal those of ``segments``, in their order, except for the wall times: each rendition counts an equal
    part of the shared work. An error of one rendition ends the whole work. ``constraints`` must be those of the
    segments, and ``ships`` must be set if it is set in the segments.
    """

    segments: tuple[EncodeSegment, ...]  # at least one; any two of them must decode alike

    @property
    def may_wait(self) -> bool:
        """Whether each rendition may wait, instead of failing, while a limit refuses an encoder session."""
        return all(segment.may_wait for segment in self.segments)

    @property
    def file(self) -> str:
        """The path or address of the source."""
        return self.segments[0].file

    def run(self, context: WorkContext) -> tuple[EncodedSegment, ...]:
        """Run in the calling thread.

        A picture counts as done when all renditions have done it. Raises the errors of ``EncodeSegment.run``, and
        ``UsageError`` if the segments do not decode alike.
        """
        first = self.segments[0]
        if not all(decodes_alike(first, other) for other in self.segments):
            message = f"{self.label} has segments that are decoded differently"
            raise UsageError(message, "Encode them separately.")
        return encode_each(self.segments, context)


def decodes_alike(first: EncodeSegment, second: EncodeSegment) -> bool:
    """Return whether one decode serves both: they take the same pictures, decoded in the same place.

    Jobs, filters without memory, encoders and their settings may differ, if both encoders run on cores, or both on a
    device.
    """
    return _decoding(first) == _decoding(second)


def _decoding(work: EncodeSegment) -> tuple[object, ...]:
    """Return everything on which the decoded pictures, and the place where they are decoded, depend."""
    on_device = work.encoder.on_device
    return (
        work.decode,
        work.interval,
        work.numbers,
        work.filters.has_memory,
        on_device,
        work.filters.on_device if on_device else work.encoder.dolby_vision,
        work.require_device,
        work.constraints,
        work.apart_from,
    )
