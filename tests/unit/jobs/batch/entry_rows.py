"""Batch entries as runs list them, and the ends of their tries."""

from codecfleet.jobs.batch.store.listing import ListedEntry
from codecfleet.jobs.batch.store.schema import Content, EndedBadly, EntryAction, FileEnded, FileResult, SegmentSpan


def listed(number: int, *, spec: str = "s", source: str = "") -> ListedEntry:
    """Return an entry as a run lists it."""
    return ListedEntry(f"{number}.mp4", source or f"/in/{number}.mkv", EntryAction.TRANSCODE, "{}", spec, 10)


def done(entry: int, began_s: float = 1.0) -> FileEnded:
    """Return the end of a successful try, after 3 s."""
    span = SegmentSpan(segment=0, began_s=began_s, ended_s=began_s + 3, frames=50, station="here", decoded_by="nvdec")
    return FileEnded(
        entry=entry,
        content=Content(version="v", sha256=None),
        source_bytes=10,
        began_s=began_s,
        ended_s=began_s + 3,
        result=FileResult.ENCODED,
        published=f"{entry}.mp4",
        output_bytes=4,
        frames=50,
        encoder="libx264 crf=23",
        segments=(span,),
    )


def failed(entry: int) -> EndedBadly:
    """Return the end of a try that failed."""
    return EndedBadly(
        entry=entry,
        content=None,
        began_s=201.0,
        ended_s=202.0,
        error="InputNotFound",
        exit_code=3,
        message="not there",
        next_step="",
    )
