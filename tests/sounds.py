"""Small films whose sound changes, or has a tone of its own in each speaker; and the tones that are heard in a file."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.packet import Packet, PacketSideData, packet_sidedata_type_from_literal
from av.video.frame import VideoFrame
from numpy.typing import NDArray

LEVEL = 0.2
PART_S = 1
FRAMES_A_SECOND = 25
SPEAKERS = (
    *("FL", "FR", "FC", "LFE", "BL", "BR", "FLC", "FRC", "BC", "SL", "SR", "TC", "TFL", "TFC", "TFR", "TBL", "TBC"),
    *("TBR", "WL", "WR", "LFE2", "TSL", "TSR", "DL", "DR", "BIL", "BIR"),
)
HZ = {name: 90 if name == "LFE" else 400 + 110 * number for number, name in enumerate(SPEAKERS)}
"""The tone of each speaker."""
_FORMATS = {"flac": "s16", "pcm_s16le": "s16"}


def names(layout: str) -> list[str]:
    """Return the speakers of a layout."""
    return [channel.name for channel in av.AudioLayout(layout).channels]


def tones(layout: str, rate: int, seconds: Fraction) -> NDArray[np.float64]:
    """Return the tones of a layout, a row for each speaker."""
    clock = np.arange(int(seconds * rate)) / rate
    return np.stack([LEVEL * np.sin(2 * np.pi * HZ[name] * clock) for name in names(layout)])


def film(
    path: Path,
    codec: str,
    *parts: tuple[str, int],
    muxer: str | None = None,
    gap_s: int = 0,
    options: dict[str, str] | None = None,
) -> Path:
    """Write a film whose sound has these layouts and rates one after the other, each for a second.

    Transport streams are written one after the other, as recorders do; other containers get the packets of all parts
    in one track, with a new configuration where a codec needs one. ``gap_s`` is silent between two parts; ``options``
    are the encoder's.
    """
    if path.suffix == ".ts":
        pieces = [_film(path, codec, part, number * (PART_S + gap_s)) for number, part in enumerate(parts)]
        path.write_bytes(b"".join(pieces))
        return path
    with av.open(str(path), "w", format=muxer) as output:
        streams: list[Any] = []
        last = -(1 << 60)
        for number, part in enumerate(parts):
            packets, templates = _packets(path.with_suffix(f".{number}.mkv"), codec, part, options)
            streams = streams or [output.add_stream_from_template(each, opaque=True) for each in templates]
            configuration = templates[1].codec_context.extradata or b""
            for packet in sorted(packets, key=lambda each: each.dts * each.time_base):
                is_sound = packet.stream.type == "audio"
                shift = int(number * PART_S / Fraction(packet.time_base))
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                if is_sound and packet.dts <= last:
                    continue  # the encoder's own first samples
                last = packet.dts if is_sound else last
                if is_sound and number and configuration:
                    packet.set_sidedata(_side_data(configuration))
                    configuration = b""
                packet.stream = streams[is_sound]
                output.mux(packet)
    return path


def _side_data(configuration: bytes) -> PacketSideData:
    make: Any = PacketSideData
    entry: PacketSideData = make(packet_sidedata_type_from_literal("new_extradata"), len(configuration))
    entry.update(configuration)
    return entry


def _film(path: Path, codec: str, part: tuple[str, int], offset_s: int) -> bytes:
    with av.open(str(path), "w") as output:
        _encode(output, codec, part, offset_s)
    return path.read_bytes()


def _packets(
    path: Path, codec: str, part: tuple[str, int], options: dict[str, str] | None
) -> "tuple[list[Packet[Any]], list[Any]]":
    with av.open(str(path), "w") as output:
        _encode(output, codec, part, 0, options)
    source = av.open(str(path))
    found = [packet for packet in source.demux() if packet.size]
    for packet in found:
        packet.dts = packet.pts if packet.dts is None else packet.dts
    return found, list(source.streams)


def _encode(
    output: Any, codec: str, part: tuple[str, int], offset_s: int, options: dict[str, str] | None = None
) -> None:
    layout, rate = part
    video = output.add_stream("libx264", rate=FRAMES_A_SECOND, options={"preset": "ultrafast", "bf": "0"})
    video.width, video.height = 64, 48
    sound = output.add_stream(codec, rate=rate, layout=layout, options=options or {})
    sound.codec_context.format = _FORMATS.get(codec, sound.codec_context.format)
    sound.codec_context.bit_rate = 96_000 * len(names(layout)) if codec != "mp2" else 128_000
    for number in range(FRAMES_A_SECOND * PART_S):
        picture = VideoFrame.from_ndarray(np.full((72, 64), 16 + number, np.uint8), format="yuv420p")
        picture.pts = number + offset_s * FRAMES_A_SECOND
        output.mux(video.encode(picture))
    samples = tones(layout, rate, Fraction(PART_S))
    for begin in range(0, samples.shape[1], rate // 50):
        block = samples[:, begin : begin + rate // 50].T.astype(np.float32).reshape(1, -1)
        frame = AudioFrame.from_ndarray(np.ascontiguousarray(block), format="flt", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, begin + offset_s * rate, Fraction(1, rate)
        output.mux(sound.encode(frame))
    output.mux(video.encode(None))
    output.mux(sound.encode(None))


def heard(path: Path, begin_s: float, end_s: float) -> tuple[str, int, dict[str, dict[str, float]]]:
    """Return the layout and rate of a file's sound between two times, and of each channel the tones in decibels.

    A tone as loud as it was made has 0 dB; those below -30 dB are left out.
    """
    found: list[NDArray[np.float64]] = []
    shapes: set[tuple[str, int]] = set()
    with av.open(str(path)) as file:
        for frame in file.decode(audio=0):
            if begin_s <= float((frame.pts or 0) * Fraction(frame.time_base or 1)) < end_s:
                shapes.add((frame.layout.name, frame.sample_rate))
                packed = av.AudioResampler("dbl", frame.layout, frame.sample_rate).resample(frame)
                found += [each.to_ndarray().reshape(-1, frame.layout.nb_channels) for each in packed]
    ((layout, rate),) = shapes
    samples = np.concatenate(found)
    return layout, rate, {name: _levels(samples[:, n], rate) for n, name in enumerate(names(layout))}


def _levels(samples: NDArray[np.float64], rate: int) -> dict[str, float]:
    window = np.hanning(len(samples))
    clock = np.arange(len(samples)) / rate
    levels = {}
    for name, hz in HZ.items():
        amplitude = abs(np.sum(samples * window * np.exp(-2j * np.pi * hz * clock))) * 2 / np.sum(window) / LEVEL
        if (decibels := 20 * np.log10(max(amplitude, 1e-9))) > -30:
            levels[name] = round(float(decibels), 2)
    return levels


def alone(found: dict[str, dict[str, float]], places: Sequence[tuple[str, str]]) -> bool:
    """Return whether each tone is within half a decibel in the channel of its place, and nothing is elsewhere."""
    wanted: dict[str, set[str]] = {channel: set() for channel in found}
    for tone, channel in places:
        wanted[channel].add(tone)
    levels = [level for channel in found.values() for level in channel.values()]
    return {name: set(each) for name, each in found.items()} == wanted and all(abs(level) < 0.5 for level in levels)
