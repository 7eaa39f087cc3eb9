"""Checks that contenders did the same work: each picture once, at its time, and about as many bytes."""

from collections.abc import Sequence
from typing import Any, Final

from .contenders import Contender
from .media import VideoFacts

__all__ = ["other_pictures", "other_sizes"]

SIZE_FACTOR: Final = 1.25
"""With equal settings, an encoder's output sizes differ by less than this, however the film is cut into segments."""


def other_pictures(found: VideoFacts, wanted: VideoFacts) -> str:
    """Return how an output's pictures differ from the source; "" if each picture appears once, at a distinct time."""
    if found.frames != wanted.frames:
        return f"{found.frames} frames of {wanted.frames}"
    together = wanted.distinct_times - found.distinct_times
    return f"{together} of {found.frames} frames share their time with another" if together > 0 else ""


def other_sizes(records: Sequence[dict[str, Any]]) -> list[str]:
    """Name each peer whose video has many more or fewer bytes than that of codecfleet for the same case."""
    ours = {r["case"]: r["video_bytes"] for r in records if r["contender"].startswith(Contender.FLEET.value)}
    parts = [(r, r["video_bytes"] / ours[r["case"]]) for r in records if r["case"] in ours]
    return [
        f"{r['case']} {r['contender']}: its video has {part:.2f} times codecfleet's bytes, so it did different work"
        for r, part in parts
        if not 1 / SIZE_FACTOR <= part <= SIZE_FACTOR
    ]
