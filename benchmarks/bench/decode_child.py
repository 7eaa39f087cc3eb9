"""Decoding in separate processes, one for each GPU: by PyNvVideoCodec only, and by our sessions without a fleet."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .failures import CommandFailed
from .film import Film
from .narrow_pool import only_these

__all__ = ["ChildWay", "DecodeChildren"]


class ChildWay(StrEnum):
    """The ways to decode that need no fleet."""

    RAW = "raw, device"
    RAW_SEGMENTS = "raw, device, packets of 2 s segments"
    RAW_HOST = "raw, its host output"
    OURS = "ours, device, one stream"
    OURS_HOST = "ours, host, one stream"
    OURS_SEGMENTS = "ours, host, 2 s segments"


class DecodeChildren:
    """One process for each GPU; all processes do the same work at the same time.

    Args:
        devices: the devices, named as in CUDA_VISIBLE_DEVICES.
        film: the film to decode.
    """

    def __init__(self, devices: Sequence[str], film: Film) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for device in devices:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, film), daemon=True)
            with only_these([device]):
                process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self, way: ChildWay, threads: int, films: int) -> tuple[int, float]:
        """Decode ``films`` films in each thread of each process; return the pictures and the wall time."""
        self._ask((way, threads, films))
        began_s = time.perf_counter()
        answers = self._ask("go")
        return sum(answers), time.perf_counter() - began_s

    def sessions_made(self) -> list[int]:
        """Return how many of our sessions each process has made."""
        return self._ask("sessions made")

    def close(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(10)

    def _ask(self, what: object) -> list[int]:
        for connection in self._connections:
            connection.send(what)
        answers = [connection.recv() for connection in self._connections]
        failed = [answer for answer in answers if isinstance(answer, str)]
        if failed:
            raise CommandFailed(failed[0])
        return answers


def _serve(connection: Connection, film: Film) -> None:
    """Answer until the other end is closed."""
    # Not imported earlier: NVIDIA's packages must be imported after the process is limited to one device.
    from codecfleet.actors.nvidia.gpu import open_gpu  # noqa: PLC0415

    gpu = open_gpu()
    decoders = _Decoders(film, gpu)
    with ThreadPoolExecutor(64) as executor:
        while True:
            try:
                what = connection.recv()
                if what == "sessions made":
                    connection.send(gpu.pool.counts.made)
                    continue
                way, threads, films = what
                connection.send(0)
                connection.recv()
                places = range(threads)
                connection.send(sum(executor.map(decoders.way(way, threads, films), places)))
            except EOFError:
                return
            except Exception as error:  # noqa: BLE001 - reported to the caller
                connection.send(f"{type(error).__name__}: {error}")


class _Decoders:
    """Every way to decode, on sessions that stay warm."""

    def __init__(self, film: Film, gpu: Any) -> None:
        self._film = film
        self._gpu = gpu
        self._raw = {on_device: _Raw(film, gpu.cuda, on_device=on_device) for on_device in (True, False)}

    def way(self, way: ChildWay, threads: int, films: int) -> Callable[[int], int]:
        """Return the function that each thread calls with its number: it decodes, and counts pictures."""
        film, gpu = self._film, self._gpu
        ways: dict[ChildWay, Callable[[int], int]] = {
            ChildWay.RAW: lambda _: self._raw[True].decode(film.in_order, films),
            ChildWay.RAW_SEGMENTS: lambda _: self._raw_segments(films),
            ChildWay.RAW_HOST: lambda _: self._raw[False].decode(film.in_order, films),
            ChildWay.OURS: lambda _: _decode((film.whole,) * films, gpu.surfaces),
            ChildWay.OURS_HOST: lambda _: _decode((film.whole,) * films, gpu.pictures),
            ChildWay.OURS_SEGMENTS: lambda place: self._segments(place, threads, films),
        }
        return ways[way]

    def _raw_segments(self, films: int) -> int:
        """Decode the packets of all segments without a break: the upper bound of the speed of decoding by segments."""
        self._raw[True].decode(self._film.in_segments, films)
        return self._film.pictures_in_segments * films

    def _segments(self, place: int, threads: int, films: int) -> int:
        """Decode every ``threads``-th of all films' segments, as a worker's threads share them."""
        _decode((self._film.segments * films * threads)[place::threads], self._gpu.pictures)
        return self._film.pictures_in_segments * films


def _decode(ranges: Sequence[Any], decoder: Any) -> int:
    from codecfleet.actors.decode.decoding import DecodeTally, decode_range  # noqa: PLC0415 - next to its only use

    return sum(1 for range_ in ranges for _ in decode_range(range_, DecodeTally(), decoder))


class _Raw:
    """PyNvVideoCodec without codecfleet: warm sessions, fed from memory, flushed after each film."""

    def __init__(self, film: Film, cuda: Any, *, on_device: bool) -> None:
        import PyNvVideoCodec  # noqa: PLC0415 - imported after the device is chosen

        self._module = PyNvVideoCodec
        self._cuda = cuda
        self._film = film
        self._on_device = on_device
        self._idle: list[Any] = []
        self._making = threading.Lock()
        self._packets = [np.frombuffer(packet, dtype=np.uint8) for packet in film.packets]

    def decode(self, order: Sequence[int], films: int) -> int:
        """Decode the packets at these places, repeatedly; return the number of pictures."""
        self._cuda.push()
        try:
            decoder = self._idle.pop()
        except IndexError:
            decoder = self._made()
        pictures = sum(self._decode_once(decoder, order) for _ in range(films))
        self._idle.append(decoder)
        return pictures

    def _made(self) -> Any:
        with self._making:
            return self._module.CreateDecoder(
                gpuid=0, codec=self._module.cudaVideoCodec(self._film.codec), usedevicememory=self._on_device
            )

    def _decode_once(self, decoder: Any, order: Sequence[int]) -> int:
        pictures = 0
        for pts, place in enumerate(order):
            data = self._packets[place]
            packet = self._module.PacketData()
            packet.bsl, packet.bsl_data, packet.pts = len(data), data.ctypes.data, pts
            pictures += len(decoder.Decode(packet))
        return pictures + len(decoder.Decode(self._module.PacketData()))
