"""Check that a consumer that never waits sees correct frames, while a GPU decodes into reused memory.

``python benchmarks/frame_reuse.py FILE``; README.md beside this file says what each number means. It needs PyTorch and
CuPy.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import av
import numpy as np
from bench.machine import describe_gpus, describe_run, described_lines
from bench.table import save_results

import codecfleet
from codecfleet import Frame
from codecfleet.actors.nvidia.cuda.device_memory import DevicePool

WIDTH: Final = 4096
"""The rows and columns of the matrices that the consumer's stream multiplies before it reads each frame, so that it
falls behind the decoder. One long product is used, because CUDA queues only about 1,000 launches: with short products,
the stream would fall fewer frames behind.
"""
WAYS: Final = ("unread", "torch", "interface", "record", "cupy", "unordered")
REORDERED: Final = 16
"""The number of additional pictures to decode: more than any stream reorders."""


def repeated(film: str, path: Path, *, frames: int) -> None:
    """Repeat a film's packets in one film of at least ``frames`` frames, so that decoding starts only once."""
    with av.open(film) as source, av.open(str(path), "w") as output:
        track = source.streams.video[0]
        packets = [packet for packet in source.demux(track) if packet.size and packet.pts is not None]
        stream = output.add_stream_from_template(track)
        times = sorted(packet.pts or 0 for packet in packets)
        step = times[1] - times[0]
        length = times[-1] - times[0] + step
        for turn in range(-(-frames // len(packets))):
            for packet, time_ticks in zip(packets, times, strict=True):
                again = av.Packet(bytes(packet))
                again.pts = (packet.pts or 0) + turn * length + REORDERED * step
                again.dts = time_ticks + turn * length
                again.time_base, again.stream, again.is_keyframe = packet.time_base, stream, packet.is_keyframe
                output.mux(again)


def host_sums(film: str, *, frames: int) -> list[int]:
    """Decode in software; return one sum of samples per frame, and repeat the film's sums up to ``frames``."""
    found = [
        sum(int(np.asarray(plane).sum(dtype="int64")) for plane in frame.planes)
        for frame in codecfleet.frames(film, decoder="software")
    ]
    return (found * (frames // len(found) + 1))[:frames]


def device_frames(film: str, *, frames: int, **options: Any) -> Iterator[Frame]:
    """Yield frames on the device, with memory for only a few of them."""
    for number, frame in enumerate(codecfleet.frames(film, place="device", decoder="nvdec", **options), 1):
        yield frame
        del frame
        if number == frames:
            return


class Consumer:
    """Sums frames on its own stream, after matrix products, and waits only at the end."""

    def __init__(self, frames: int, device: int = 0) -> None:
        import torch  # noqa: PLC0415 - imported where it is needed

        self._torch = torch
        self._place = torch.device("cuda", device)
        self.sums = torch.zeros(frames, dtype=torch.int64, device=self._place)
        self._weights = torch.randn(WIDTH, WIDTH, device=self._place)
        self._stream = torch.cuda.Stream(self._place)
        self.taken = 0

    def add(self, rows: Any) -> None:
        """Queue the sum of a frame after some work."""
        self._weights @ self._weights
        self.sums[self.taken] = rows.sum(dtype=self._torch.int64)
        self.taken += 1

    @contextmanager
    def working(self) -> Iterator[None]:
        """Make the consumer's stream the current one."""
        with self._torch.cuda.stream(self._stream):
            yield

    def by_torch(self, frame: Frame) -> None:
        """Take a frame by DLPack, with the current stream."""
        with self.working():
            self.add(self._torch.from_dlpack(frame))

    def by_interface(self, frame: Frame) -> None:
        """Take a frame through the CUDA array interface, which names no stream."""
        with self.working():
            self.add(self._torch.as_tensor(frame, device=self._place))

    def by_record(self, frame: Frame) -> None:
        """Take a frame in one stream, use it in another, and record that stream."""
        rows = self._torch.from_dlpack(frame)
        frame.record_stream(self._stream.cuda_stream)
        with self.working():
            self.add(rows)

    def by_cupy(self, frame: Frame) -> None:
        """Take a frame with CuPy, on the same stream."""
        import cupy  # noqa: PLC0415 - imported where it is needed

        with cupy.cuda.ExternalStream(self._stream.cuda_stream, self._place.index), self.working():
            self.add(self._torch.as_tensor(cupy.from_dlpack(frame).sum(dtype="int64"), device=self._place))

    def found(self) -> list[int]:
        """Wait, and return the sums."""
        self._stream.synchronize()
        return [int(each) for each in self.sums.cpu()]


@contextmanager
def without_waits() -> Iterator[None]:
    """Reuse memory without waiting for consumers, which causes the errors that the test must find."""
    original = DevicePool.take_back_after

    def forgetful(self: DevicePool, address: int, size_bytes: int, users: dict[int, int]) -> None:
        del users
        original(self, address, size_bytes, {})

    DevicePool.take_back_after = forgetful  # type: ignore[method-assign]
    try:
        yield
    finally:
        DevicePool.take_back_after = original  # type: ignore[method-assign]


def run(film: str, wanted: list[int], way: str, *, device: int = 0, **options: Any) -> dict[str, Any]:
    """Let a consumer sum frames in one of ``WAYS``; return how many sums differ from ``wanted``, and the speed."""
    consumer = Consumer(len(wanted), device)
    take = getattr(consumer, f"by_{way}")
    began = time.monotonic()
    for frame in device_frames(film, frames=len(wanted), device=device, **options):
        take(frame)
        del frame
    found = consumer.found()
    seconds = time.monotonic() - began
    wrong = sum(one != other for one, other in zip(found, wanted, strict=True))
    return {"way": way, "device": device, "frames": len(wanted), "wrong": wrong, "fps": round(len(wanted) / seconds)}


def speed(film: str, *, frames: int, **options: Any) -> dict[str, Any]:
    """Return the speed of frames that no consumer reads."""
    began = time.monotonic()
    count = sum(1 for _ in device_frames(film, frames=frames, **options))
    return {"way": "unread", "frames": count, "fps": round(count / (time.monotonic() - began))}


def both_devices(film: str, wanted: list[int], **options: Any) -> list[dict[str, Any]]:
    """Decode on two devices of one process at once, each with its own consumer; and check the current device."""
    import torch  # noqa: PLC0415 - imported where it is needed

    found: list[dict[str, Any]] = []
    torch.cuda.set_device(1)

    def work(device: int) -> None:
        torch.cuda.set_device(device)
        found.append(run(film, wanted, "torch", device=device, **options))
        found[-1]["current_device_after"] = torch.cuda.current_device()

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    frame = next(iter(codecfleet.frames(film, place="device", decoder="nvdec", device=0)))
    frame.to_ndarray()
    del frame
    after = {
        "way": "to_ndarray of device 0 on a thread of device 1",
        "current_device_after": torch.cuda.current_device(),
    }
    after["new_tensor_on"] = str(torch.empty(1, device="cuda").device)
    return [*sorted(found, key=lambda row: row["device"]), after]


def main() -> int:
    """Measure, print and save; return 1 if a sum is wrong, or if the test misses the deliberate errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("film")
    parser.add_argument("--frames", type=int, default=10_000, help="number of frames for each consumer")
    parser.add_argument("--memory-mib", type=int, default=400, help="memory for frames that are decoded ahead")
    parser.add_argument("--threads", type=int, default=2, help="segments decoded at once")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS, help="consumers")
    parser.add_argument("--two-devices", action="store_true", help="decode on two devices of this process at once")
    parser.add_argument("--save", metavar="NAME", help="write everything to results/NAME.json")
    given = parser.parse_args()
    about = describe_run(None) | describe_gpus()
    print(*described_lines(about), sep="\n")
    with TemporaryDirectory() as folder:
        path = Path(folder, "repeated.mkv")
        repeated(given.film, path, frames=given.frames)
        rows = measured(str(path), host_sums(given.film, frames=given.frames), given)
    if given.save:
        print(
            save_results(given.save, about | {"memory_mib": given.memory_mib, "threads": given.threads, "rows": rows})
        )
    return int(any(is_bad(row) for row in rows))


def is_bad(row: dict[str, Any]) -> bool:
    """Return whether a row is unexpected: without the waits some sums must be wrong, and with the waits none."""
    return "wrong" in row and (row["wrong"] > 0) != (row["way"] == "unordered")


def measured(film: str, wanted: list[int], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every consumer; print and return the results."""
    options = {"memory_bytes": given.memory_mib << 20, "threads": given.threads}
    rows = []
    for way in given.ways:
        if way == "unread":
            rows.append(speed(film, frames=given.frames, **options))
        elif way == "unordered":
            with without_waits():
                rows.append(run(film, wanted, "torch", **options) | {"way": way})
        else:
            rows.append(run(film, wanted, way, **options))
    if given.two_devices:
        rows += both_devices(film, wanted, **options)
    for row in rows:
        print(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())
