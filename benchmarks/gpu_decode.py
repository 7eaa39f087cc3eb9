"""Time decoding on NVDEC: raw PyNvVideoCodec against our sessions, on the machine's first GPU.

``python benchmarks/gpu_decode.py FILE``; README.md beside this file says what each number means.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from bench.machine import describe_run, described_lines
from bench.table import number, save_results, spread, table_lines

# Before anything of NVIDIA's is imported: its capability calls always use the first device.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")

from codecfleet.actors.decoding import DecodeRange, DecodeTally, decode_range, open_track
from codecfleet.actors.nvidia.cuda import Cuda
from codecfleet.actors.nvidia.feeding import Feeder
from codecfleet.actors.nvidia.fitness import CODECS, track_facts
from codecfleet.actors.nvidia.nvdec_decoder import NvdecDecoder
from codecfleet.actors.nvidia.open_nvdec import open_nvdec
from codecfleet.actors.opening import open_source
from codecfleet.jobs.plan import plan_transcode
from codecfleet.jobs.spec import TranscodeSpec

SEGMENT_S = Fraction(2)


@dataclass(frozen=True, slots=True)
class Film:
    """A file's packets as NVDEC eats them, and its ranges: one for the whole, and one for each 2 s."""

    codec: int
    packets: tuple[bytes, ...]
    whole: DecodeRange
    segments: tuple[DecodeRange, ...]
    pictures_in_segments: int
    """Segments overlap by what reordering and the proof of seams need: pictures that are decoded twice count once."""


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args()
    document = describe_run(None) | _gpu()
    for line in described_lines(document):
        print(line)
    print(f"{document['gpu']}, driver {document['driver']}\n")
    film = _read(options.file)
    rows = [row for threads in options.threads for row in _runs(film, threads, options)]
    best = max(row["fps"]["median"] for row in rows if row["what"] == _RAW)
    for row in rows:
        row["of_best_raw"] = row["fps"]["median"] / best
    print("\n".join(_lines(rows)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document | {'file': options.file.name, 'rows': rows})}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", type=Path, help="an H.264 or HEVC film")
    add("--threads", type=int, nargs="+", default=[1, 7, 14], metavar="N", help="sessions at once (default: 1 7 14)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    add("--films", type=int, default=4, metavar="N", help="how often each session decodes the film (default: 4)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _gpu() -> dict[str, Any]:
    import pynvml  # noqa: PLC0415 - a machine without a driver fails here, with a message

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return {"gpu": pynvml.nvmlDeviceGetName(handle), "driver": pynvml.nvmlSystemGetDriverVersion()}


def _read(path: Path) -> Film:
    plan = plan_transcode(TranscodeSpec(source=str(path), output="out.mkv", segment_s=SEGMENT_S, force=True))
    works = [plan.work("bench", segment, segment, 0) for segment in range(len(plan.segments))]
    whole = replace(works[0].decode, last_packet=None, expected_ticks=(), expected_packets=None)
    with open_source(str(path)) as container:
        stream = open_track(container, whole)
        facts = track_facts(stream)
        feeder = Feeder(facts.codec, facts.extradata)
        packets = enumerate(bytes(packet) for packet in container.demux(stream) if packet.size)
        chunks = [chunk.payload for number, data in packets for chunk in feeder.chunks(number, data)]
    return Film(CODECS[facts.codec], tuple(chunks), whole, tuple(work.decode for work in works), plan.frames)


_RAW = "raw, device"
_RAW_HOST = "raw, its host output"
_STREAM = "ours, host, one stream"
_SEGMENTS = "ours, host, 2 s segments"


def _runs(film: Film, threads: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time each way of decoding with so many sessions at once."""
    decoder = open_nvdec()
    raw, raw_host = _Raw(film, on_device=True), _Raw(film, on_device=False)
    ways: dict[str, Callable[[int], int]] = {
        _RAW: lambda _: raw.decode(options.films),
        _RAW_HOST: lambda _: raw_host.decode(options.films),
        _STREAM: lambda _: sum(_ours(decoder, film.whole) for _ in range(options.films)),
        _SEGMENTS: lambda place: _segments(decoder, film, place, threads, options.films),
    }
    rows = [_timed(what, way, threads, options.repeats) for what, way in ways.items()]
    counts = decoder.pool.counts
    for row in rows:
        if row["what"] in (_STREAM, _SEGMENTS):
            row |= {"sessions_made": counts.made, "sessions_lent": counts.lent}
    decoder.pool.close()
    return rows


def _timed(what: str, way: Callable[[int], int], threads: int, repeats: int) -> dict[str, Any]:
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(way, range(threads)))  # sessions are warm from here on
        fps, busy = [], []
        for _ in range(repeats):
            with _Utilisation() as utilisation:
                began_s = time.perf_counter()
                pictures = sum(executor.map(way, range(threads)))
                fps.append(pictures / (time.perf_counter() - began_s))
            busy.append(utilisation.percent)
    return {"what": what, "threads": threads, "fps": spread(fps), "nvdec_percent": max(busy)}


class _Raw:
    """PyNvVideoCodec by itself: a warm session for each thread, fed from memory, flushed after each film."""

    def __init__(self, film: Film, *, on_device: bool) -> None:
        import PyNvVideoCodec  # noqa: PLC0415 - not before the device is chosen
        from cuda.bindings import driver  # noqa: PLC0415 - as above

        self._module = PyNvVideoCodec
        self._cuda = Cuda(driver)
        self._film = film
        self._on_device = on_device
        self._local = threading.local()
        self._packets = [np.frombuffer(packet, dtype=np.uint8) for packet in film.packets]

    def decode(self, films: int) -> int:
        self._cuda.enter()
        if not hasattr(self._local, "decoder"):
            self._local.decoder = self._module.CreateDecoder(
                gpuid=0, codec=self._module.cudaVideoCodec(self._film.codec), usedevicememory=self._on_device
            )
        return sum(self._decode_once(self._local.decoder) for _ in range(films))

    def _decode_once(self, decoder: Any) -> int:  # noqa: ANN401 - publishes no types
        pictures = 0
        for place, data in enumerate(self._packets):
            packet = self._module.PacketData()
            packet.bsl, packet.bsl_data, packet.pts = len(data), data.ctypes.data, place
            pictures += len(decoder.Decode(packet))
        return pictures + len(decoder.Decode(self._module.PacketData()))


def _ours(decoder: NvdecDecoder, range_: DecodeRange) -> int:
    return sum(1 for _ in decode_range(range_, DecodeTally(), decoder))


def _segments(decoder: NvdecDecoder, film: Film, place: int, threads: int, films: int) -> int:
    """Decode every ``threads``-th of all films' segments, as a worker's threads share them; count pictures once."""
    ranges: Sequence[DecodeRange] = (film.segments * films * threads)[place::threads]
    for range_ in ranges:
        _ours(decoder, range_)
    return film.pictures_in_segments * films


class _Utilisation:
    """The highest NVDEC utilisation that NVML reports while a block runs, asked ten times a second."""

    def __init__(self) -> None:
        import pynvml  # noqa: PLC0415 - as above

        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.percent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            percent, _ = self._nvml.nvmlDeviceGetDecoderUtilization(self._handle)
            self.percent = max(self.percent, percent)


def _lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [
        [
            f"{row['what']}, {row['threads']} threads",
            number(row["fps"]["median"], 0),
            f"{number(row['fps']['least'], 0)} to {number(row['fps']['most'], 0)}",
            number(row["of_best_raw"], 3),
            f"{row['nvdec_percent']} %",
            str(row.get("sessions_made", "")),
        ]
        for row in rows
    ]
    return table_lines(("decoding", "fps", "least to most", "of best raw", "NVDEC", "sessions made"), cells)


if __name__ == "__main__":
    sys.exit(main())
