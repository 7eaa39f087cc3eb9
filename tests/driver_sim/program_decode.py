"""What a child process of the tests runs: PyNvVideoCodec decodes packets, and what came of it is printed as JSON.

The one argument is a msgpack file with ``jobs``: each has a ``codec`` ("H264"), ``device_memory``, ``latency`` and
``segments`` of [data, pts] packets. A segment is fed to the job's one decoder and flushed. The answer of a job is a
list of frames [pts, MD5] per segment, or the error that ended it.
"""

import json
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import PyNvVideoCodec
from cuda.bindings import driver


def decoded(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job."""
    decoder = PyNvVideoCodec.CreateDecoder(
        gpuid=0,
        codec=getattr(PyNvVideoCodec.cudaVideoCodec, job["codec"]),
        usedevicememory=job["device_memory"],
        latency=getattr(PyNvVideoCodec.DisplayDecodeLatencyType, job["latency"]),
    )
    answer: dict[str, Any] = {"segments": [], "error": ""}
    try:
        for segment in job["segments"]:
            answer["segments"].append([])
            for data, pts in [*segment, (b"", 0)]:
                answer["segments"][-1] += _fed(decoder, job, data, pts)
    except (PyNvVideoCodec.PyNvVCException, PyNvVideoCodec.PyNvVCExceptionUnsupported, RuntimeError) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def _fed(decoder: Any, job: dict[str, Any], data: bytes, pts: int) -> list[list[object]]:
    packet = PyNvVideoCodec.PacketData()
    buffer = np.frombuffer(data, np.uint8)
    packet.bsl = len(data)
    packet.bsl_data = buffer.ctypes.data if data else 0
    packet.pts = pts
    if job["latency"] == "ZERO":
        packet.decode_flag = PyNvVideoCodec.VideoPacketFlag.ENDOFPICTURE
    frames = decoder.Decode(packet)
    return [[frame.getPTS(), md5(_samples(frame, job), usedforsecurity=False).hexdigest()] for frame in frames]


def _samples(frame: Any, job: dict[str, Any]) -> bytes:
    if not job["device_memory"]:
        return bytes(np.from_dlpack(frame).tobytes())
    copy = np.empty(frame.framesize(), np.uint8)
    (said,) = driver.cuMemcpyDtoH(copy.ctypes.data, frame.GetPtrToPlane(0), copy.nbytes)
    if said != driver.CUresult.CUDA_SUCCESS:
        message = f"the copy failed: {said}"
        raise RuntimeError(message)
    return copy.tobytes()


def main() -> None:
    """Make the device's context current, for the copies, and run all jobs."""
    jobs = msgpack.unpackb(Path(sys.argv[1]).read_bytes())["jobs"]
    driver.cuInit(0)
    said, context = driver.cuDevicePrimaryCtxRetain(0)
    if said == driver.CUresult.CUDA_SUCCESS:
        driver.cuCtxPushCurrent(context)
    sys.stdout.write(f"\n{json.dumps([decoded(job) for job in jobs])}\n")


if __name__ == "__main__":
    main()
