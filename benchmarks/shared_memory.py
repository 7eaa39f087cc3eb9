"""Check decoded pictures in memory that GPU and processor share, and time each kind of memory.

``python benchmarks/shared_memory.py``; README.md beside this file says what is recorded. On a card the platform is
simulated: memory is chosen as on an integrated GPU.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from av.video.frame import VideoFrame

from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.device.memory_choice import Platform, Waiting
from codecfleet.actors.dla.engine import CudaCalls
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher, Unpacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.host_pictures import packed_surface, plane_samples

RESULTS = Path(__file__).parent / "results"
WAYS = {
    "as on a card": None,
    "as on a Xavier (7.2)": Platform(integrated=True, io_coherent=True),
    "as on a TX2 (6.2)": Platform(integrated=True, io_coherent=False),
}
CASES = (("yuv420p", (1920, 1080)), ("yuv420p10le", (1920, 1080)), ("yuv444p", (854, 480)))
BATCH = 4
"""Pictures in flight before a wait: their buffers are reused from batch to batch."""
WAITS = 2000


def format_of(pix_fmt: str) -> SurfaceFormat:
    """Return the kinds of surface that hold a format."""
    found = surface_format(pix_fmt)
    if found is None:
        raise ValueError(pix_fmt)
    return found


def noise(pix_fmt: str, size: tuple[int, int], seed: int) -> VideoFrame:
    """Return a picture with random significant bits."""
    format_ = format_of(pix_fmt)
    picture, random = VideoFrame(*size, pix_fmt), np.random.default_rng(seed)
    for samples in plane_samples(picture, format_):
        samples[:] = random.integers(0, 1 << format_.bits, samples.shape)
    return picture


def fetched(cuda: Cuda, pix_fmt: str, size: tuple[int, int], pictures: int) -> dict[str, Any]:
    """Bring surfaces to the host, compare every picture, and return the counts."""
    format_, unpacker = format_of(pix_fmt), compiled(Unpacker, cuda)[0]
    memory, stream = PinnedMemory(cuda), cuda.stream()
    fetcher = PictureFetcher(cuda, memory, unpacker, format_=format_, size=size, pix_fmt=pix_fmt)
    originals = [noise(pix_fmt, size, seed) for seed in range(BATCH)]
    wanted = [picture_hash(0, each).digest for each in originals]
    surfaces = []
    for each in originals:
        staged = memory.acquire(format_.size_bytes(*size))
        packed_surface(each, format_, np.asarray(staged))
        surfaces.append(cuda.allocate(format_.size_bytes(*size)))
        cuda.copy_to_device(surfaces[-1], staged.address, format_.size_bytes(*size), stream)
        stream.wait()
    wrong, device_s = 0, 0.0
    for batch in range(pictures // BATCH):
        order = [(batch + number) % BATCH for number in range(BATCH)]
        began = time.perf_counter()
        begun = [fetcher.begin(surfaces[number], stream) for number in order]
        stream.wait()
        device_s += time.perf_counter() - began
        wrong += sum(
            picture_hash(0, each()).digest != wanted[number] for each, number in zip(begun, order, strict=True)
        )
    fetcher.close()
    for surface in surfaces:
        cuda.free(surface)
    stream.close()
    return {
        "pix_fmt": pix_fmt,
        "size": list(size),
        "memory": memory.choice.memory.value,
        "in place": memory.shares,
        "pictures": pictures,
        "wrong": wrong,
        "fps": round(pictures / device_s),
    }


def waited(waiting: Waiting) -> float:
    """Return the median microseconds of a wait for a small kernel; call it in a separate process."""
    from cuda.bindings import driver  # noqa: PLC0415 - the flag must be set before the context exists

    cuda = CudaCalls(driver, waiting)
    cuda.enter()
    stream, memory = cuda.call("cuStreamCreate", 1), cuda.call("cuMemAlloc", 4096)
    times = []
    for _ in range(WAITS):
        cuda.call("cuMemsetD8Async", memory, 0, 4096, stream)
        began = time.perf_counter()
        cuda.call("cuStreamSynchronize", stream)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def main() -> None:
    """Run every case and print the results; save them if a name is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument("--wait", metavar="FLAG", help="measure one wait flag, in this process")
    options = parser.parse_args()
    if options.wait:
        print(waited(Waiting[options.wait]))
        return
    from cuda.bindings import driver  # noqa: PLC0415 - needed only with a GPU

    found: dict[str, Any] = {"python": platform.python_version(), "cases": [], "wait_us": {}}
    cuda = Cuda(driver)
    found["device"] = cuda._call("cuDeviceGetName", 64, 0).split(b"\0")[0].decode()  # noqa: SLF001
    for name, given in WAYS.items():
        cuda.platform = given or cuda.platform
        for pix_fmt, size in CASES:
            found["cases"].append({"way": name, **fetched(cuda, pix_fmt, size, options.pictures)})
            print(found["cases"][-1], flush=True)
    for waiting in Waiting:
        done = subprocess.run(
            [sys.executable, __file__, "--wait", waiting.name], capture_output=True, text=True, check=False
        )
        found["wait_us"][waiting.name] = round(float(done.stdout), 1) if not done.returncode else done.stderr[-300:]
    print(found["wait_us"])
    if options.save:
        (RESULTS / f"{options.save}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if any(case["wrong"] for case in found["cases"]):
        sys.exit("pictures are wrong")


if __name__ == "__main__":
    main()
