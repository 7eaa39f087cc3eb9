"""Films with HDR10+ metadata, whose values are those of the pictures' numbers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
from av.packet import PacketSideData, packet_sidedata_type_from_literal

from codecfleet.actors.bitstream.sei import message_unit
from codecfleet.actors.media.av_stream import copy_parameters
from codecfleet.actors.media.values import SeiMessage
from codecfleet.testing.clips import Clip, constant_times, make_clip

FRAMES, STEP_MS = 50, 40
Written = Callable[[int], int | None]
"""Returns the number of the message to write with a picture, or None; called in decoding order."""


def message(number: int, *, windows: int = 1) -> bytes:
    """Return metadata as in ST 2094-40, whose values depend on ``number``; pairs are (value, bits)."""
    percentiles = [pair for percent in (1, 5, 10, 25, 50, 75, 90, 95, 99) for pair in ((percent, 7), (number, 17))]
    statistics = [(number * 1000, 17), (0, 17), (number, 17), (500, 17), (9, 4), *percentiles, (0, 10)]
    curve = [(1, 1), (number, 12), (0, 12), (9, 4), *((number + n, 10) for n in range(9)), (0, 1)]
    places = [(8, 16)] * 6 + [(0, 8)] + [(8, 16)] * 3 + [(0, 1)]
    head = [(1, 8), (windows, 2), *places * (windows - 1), (400, 27), (0, 1)]
    fields = [*head, *statistics * windows, (0, 1), *curve * windows]
    bits = "".join(f"{value:0{width}b}" for value, width in fields)
    bits += "0" * (-len(bits) % 8)
    return b"\xb5\x00\x3c\x00\x01\x04" + int(bits, 2).to_bytes(len(bits) // 8)


def hevc(
    folder: Path, written: Written, *, windows: int = 1, change: Callable[[bytes], bytes] = lambda payload: payload
) -> Path:
    """Return an HEVC film with B-pictures and open GOPs, whose packets have messages, each changed."""
    params = "log-level=none:bframes=3:open-gop=1:keyint=10:min-keyint=10:scenecut=0"
    options = (("preset", "ultrafast"), ("x265-params", params))
    plain = make_clip(folder / "plain.mp4", Clip(times=constant_times(FRAMES), encoder="libx265", options=options))

    def with_message(packet: Any) -> bytes:
        number = written((packet.pts or 0) * 1000 // (packet.time_base.denominator * STEP_MS))
        if number is None:
            return bytes(packet)
        unit = message_unit("hevc", SeiMessage(4, change(message(number, windows=windows))))
        return len(unit).to_bytes(4) + unit + bytes(packet)

    return rewritten(plain, folder / "source.mp4", with_message)


def rewritten(
    source: Path, output: Path, change: Callable[[Any], bytes], structures: Iterator[bytes] | None = None
) -> Path:
    """Copy a film's packets, each changed; ``structures`` are FFmpeg's structures of metadata, beside the packets."""
    with av.open(str(source)) as before, av.open(str(output), "w") as after:
        stream = before.streams.video[0]
        copy = after.add_mux_stream(stream.codec_context.codec.canonical_name, width=64, height=48)
        copy_parameters(copy, stream)
        copy.time_base = stream.time_base
        for packet in before.demux(stream):
            if packet.size:
                new: Any = av.Packet(change(packet))
                new.pts, new.dts, new.duration = packet.pts, packet.dts, packet.duration
                new.time_base, new.is_keyframe, new.stream = packet.time_base, packet.is_keyframe, copy
                if structures is not None:
                    structure = next(structures)
                    kind = packet_sidedata_type_from_literal("dynamic_hdr10_plus")
                    beside = PacketSideData(kind, len(structure))
                    beside.update(structure)
                    new.set_sidedata(beside)
                after.mux(new)
    return output


def every(number: int) -> int:
    """Give each picture its own message."""
    return number


def changes_only() -> Written:
    """Return a function that gives three pictures each the same message, written as x265's ``dhdr10-opt`` does."""
    held: list[int] = []

    def written(number: int) -> int | None:
        is_new = held[-1:] != [number // 3]
        held.append(number // 3)
        return number // 3 if is_new else None

    return written
