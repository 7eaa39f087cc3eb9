"""Saves the packets of a segment that no attempt could complete, for a bug report."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from av.video.frame import VideoFrame

from ...actors.decode.decoding import DecodeRange, DecodeTally, OpenTrack, PictureDecoder, decode_range
from ...errors import redacted
from ..board.retries import Attempt
from ..join.spool import storage_error
from .reporting import attempt_report

if TYPE_CHECKING:
    from ...actors.decode.decoding import VideoPacket


@dataclass(slots=True)
class _PacketCopy(PictureDecoder[VideoFrame]):
    """Copies a decoder's packets without decoding them."""

    name = "copy"
    track: dict[str, Any] = field(default_factory=dict)
    packets: list[dict[str, Any]] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Copy the packets, and yield no picture."""
        del tally
        stream, context = track.stream, track.context
        self.track = {
            "codec": context.name,
            "width": context.width,
            "height": context.height,
            "time_base": str(stream.time_base),
            "extradata_hex": (context.extradata or b"").hex(),
        }
        for number, packet in packets:
            payload = bytes(packet)
            self.payloads.append(payload)
            times = {"pts_ticks": packet.pts, "dts_ticks": packet.dts}
            facts = {"keyframe": packet.is_keyframe, "size_bytes": len(payload)}
            self.packets.append({"packet": number, **times, **facts})
        yield from ()


def save_evidence(folder: Path, segment: int, range_: DecodeRange, history: tuple[Attempt, ...]) -> Path:
    """Save the packets that ``segment`` reads, and a description of packets and attempts (docs/reliability.md).

    Return the file of concatenated packets, which any player of the codec's raw streams can play. Raises InputError:
    the source can no longer be read; StorageFailed.
    """
    copy = _PacketCopy()
    with closing(decode_range(range_, DecodeTally(), copy)) as pictures:
        for _ in pictures:
            pass
    path = folder / f"segment-{segment:06d}.bin"
    described = {
        "schema": 1,
        "source": redacted(range_.source),
        "segment": segment,
        "track": copy.track,
        "attempts": [attempt_report(attempt).model_dump() for attempt in history],
        "packets": copy.packets,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(copy.payloads))
        path.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise storage_error(error, path) from error
    return path
