"""The table of every fault that a driver can have, and of our error for each fault."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.errors import (
    CodecfleetError,
    DeviceError,
    DeviceLost,
    EngineFailed,
    EngineHung,
)

from .fault_programs import STEPS
from .scenario import Action, Fault

PATIENCE_S: Final = 60.0
"""How long a case may take before it is ended: a last resort, which no case needs, however busy the machine is."""
SILENT_AFTER_S: Final = 2.0
HUNG_AFTER_S: Final = 1.0
"""The time limit of calls, in quiet seconds (``quiet_clock.py``)."""
FAR_TOO_SLOW_MS: Final = 120_000
"""How late a slow call returns, long after it was given up."""
EXIT_CODE: Final = 41
XID: Final = 31
MORE: Final = 17
"""NV_ENC_ERR_NEED_MORE_INPUT, which is not a fault: the picture's packet comes later."""


class Ends(Enum):
    """The outcome of a fault that does not end in one of our errors."""

    NOTHING = "the work continues, and its result is right"
    PROCESS = "the process ends: WorkerLost"
    SILENCE = "the process does not answer any more, and the supervisor ends it: WorkerLost"
    UNSEEN = "unseen until the output is decoded: codecfleet verify"
    ABSENT = "the answer is absent, with its reason"
    LOST = "the report calls the device lost"


Outcome = type[CodecfleetError] | Ends


NOTHING, PROCESS, SILENCE, UNSEEN, ABSENT, LOST = Ends
PLACES: Final = {
    "libcuda": (("cuDevicePrimaryCtxRetain", 1), ("cuMemAlloc", 1), ("cuMemAlloc", 3), ("cuMemFree", 2)),
    # A session decodes a picture of its first range when it is opened, and again in its turn.
    "nvcuvid": (
        ("cuvidCreateDecoder", 1),
        ("cuvidDecodePicture", 2),
        ("cuvidDecodePicture", 9),
        ("cuvidDestroyDecoder", 1),
    ),
    # The encoders before the third are PyNvVideoCodec's own, which ask for capabilities.
    "nvenc": (
        ("NvEncInitializeEncoder", 1),
        ("NvEncEncodePicture", 1),
        ("NvEncLockBitstream", 4),
        ("NvEncDestroyEncoder", 3),
    ),
    "nvml": (("nvmlInit", 1), ("nvmlDeviceGetPciInfo", 1), ("nvmlDeviceGetMemoryInfo", 1), ("nvmlShutdown", 1)),
    "cudla": (("cudlaCreateDevice", 1), ("cudlaSubmitTask", 1), ("cudlaSubmitTask", 3), ("cudlaDestroyDevice", 1)),
    "nvscibuf": (
        ("NvSciBufModuleOpen", 1),
        ("NvSciBufObjAlloc", 1),
        ("NvSciBufObjAlloc", 3),
        ("NvSciBufObjFree", 1),
    ),
    "nvscisync": (
        ("NvSciSyncModuleOpen", 1),
        ("NvSciSyncFenceWait", 1),
        ("NvSciSyncFenceWait", 3),
        ("NvSciSyncObjFree", 1),
    ),
    "EGL": (
        ("eglCreateStreamKHR", 1),
        ("cuEGLStreamConsumerAcquireFrame", 1),
        ("cuEGLStreamProducerPresentFrame", 3),
        ("cuEGLStreamConsumerDisconnect", 1),
    ),
}
"""The function and the call at which each library's faults happen: opening, the first call, a later call, closing."""


def everywhere(outcome: Outcome) -> tuple[Outcome, ...]:
    """Return the same outcome for all stages."""
    return (outcome,) * len(STEPS)


VALUES: Final = {Action.EXIT: EXIT_CODE, Action.XID: XID, Action.SLOW: 20}
STATUSES: Final = {
    "libcuda": 700,
    "nvcuvid": 700,
    "nvenc": 20,
    "nvml": 4,
    "cudla": CudlaStatus.OS,
    "nvscibuf": 0x30,
    "nvscisync": 0x32,
    "EGL": 999,
}


EFFECTS: Final[dict[tuple[str, Action], tuple[Outcome, ...]]] = {
    ("libcuda", Action.STATUS): everywhere(DeviceLost),
    ("libcuda", Action.HANG): everywhere(EngineHung),
    ("libcuda", Action.LOSE): everywhere(DeviceLost),
    ("libcuda", Action.BREAK): everywhere(DeviceLost),
    # The package reports no decoder that fails to close, and holds the GIL while it closes a decoder.
    ("nvcuvid", Action.STATUS): (DeviceLost, DeviceLost, DeviceLost, NOTHING),
    ("nvcuvid", Action.HANG): (EngineHung, EngineHung, EngineHung, SILENCE),
    ("nvcuvid", Action.LOSE): everywhere(DeviceLost),
    ("nvcuvid", Action.BREAK): everywhere(DeviceLost),
    ("nvcuvid", Action.SHORT): (NOTHING, EngineFailed, EngineFailed, NOTHING),
    ("nvcuvid", Action.CORRUPT): (NOTHING, EngineFailed, EngineFailed, NOTHING),
    ("nvenc", Action.STATUS): (EngineFailed, EngineFailed, EngineFailed, NOTHING),
    ("nvenc", Action.HANG): everywhere(EngineHung),
    # The package ends the process when it destroys an encoder on a lost device.
    ("nvenc", Action.LOSE): (DeviceLost, DeviceLost, DeviceLost, PROCESS),
    ("nvenc", Action.BREAK): (DeviceLost, DeviceLost, DeviceLost, PROCESS),
    # H.264 and HEVC do not state a picture's length. AV1 does: see EXTRAS.
    ("nvenc", Action.SHORT): (NOTHING, UNSEEN, UNSEEN, NOTHING),
    # Only probes call NVML. They raise nothing: the report says what is missing.
    ("nvml", Action.STATUS): (ABSENT, ABSENT, ABSENT, NOTHING),
    ("nvml", Action.HANG): everywhere(ABSENT),
    ("nvml", Action.EXIT): everywhere(ABSENT),
    ("nvml", Action.LOSE): (NOTHING, LOST, LOST, NOTHING),
    # EXTRAS has a corrupt task of a DLA.
    ("cudla", Action.STATUS): everywhere(DeviceLost),
    ("cudla", Action.HANG): everywhere(EngineHung),
    ("cudla", Action.LOSE): everywhere(DeviceLost),
    ("cudla", Action.BREAK): everywhere(DeviceLost),
    # Functions that free objects return nothing. Neither library has a device: cuDLA reports the loss.
    **{
        (library, Action.STATUS): (DeviceLost, DeviceLost, DeviceLost, NOTHING) for library in ("nvscibuf", "nvscisync")
    },
    **{(library, Action.HANG): everywhere(EngineHung) for library in ("nvscibuf", "nvscisync")},
    # test_egl.py tests a corrupt image of EGL.
    ("EGL", Action.STATUS): everywhere(DeviceLost),
    ("EGL", Action.HANG): everywhere(EngineHung),
    ("EGL", Action.LOSE): everywhere(DeviceLost),
    ("EGL", Action.BREAK): everywhere(DeviceLost),
}
"""The outcome at each of the four stages, by library and action, if there is one."""
TABLE: Final = {
    (library, action): EFFECTS.get((library, action), everywhere(PROCESS if action is Action.EXIT else NOTHING))
    for library in PLACES
    for action in Action
    if action is not Action.ANSWER  # queries of NVML are no fault of a session: test_live_health.py
}
"""The outcomes for every library and action."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault, and its outcome in ``step``; ``limit_s`` is the time limit of calls, 0 for the usual limit."""

    program: str
    fault: Fault
    step: str
    outcome: Outcome
    words: str = ""
    limit_s: float = 0.0

    @property
    def name(self) -> str:
        """The name of the row within the test's name."""
        fault = self.fault
        value = "" if fault.value is None else f" {fault.value}"
        return f"{self.program} {fault.function} {fault.call} {fault.action.value}{value}"


def fault(function: str, action: Action, call: int, value: int | None = None) -> Fault:
    """Return a fault, of device 0 if the action concerns a device."""
    device = 0 if action in (Action.LOSE, Action.BREAK, Action.XID) else None
    return Fault(function=function, action=action, value=value, device=device, call=call)


def stage_rows() -> list[Row]:
    """Return the rows of the table."""
    rows = []
    for (library, action), outcomes in TABLE.items():
        value = STATUSES[library] if action is Action.STATUS else VALUES.get(action)
        for step, (function, call), outcome in zip(STEPS, PLACES[library], outcomes, strict=True):
            if action in (Action.SHORT, Action.CORRUPT) and outcomes == everywhere(NOTHING) and step != "later calls":
                continue  # the action means nothing to this library: one place is enough to show that
            # NVDEC opens its decoder with the first picture of the first range.
            told = "first call" if library == "nvcuvid" and step != "closing" else step
            limit_s = HUNG_AFTER_S if action is Action.HANG else 0.0
            if library == "nvml" and action in (Action.HANG, Action.EXIT):
                limit_s = 1.5  # time for a separate process to start
            rows.append(Row(library, fault(function, action, call, value), told, outcome, limit_s=limit_s))
    return rows


def hung(
    program: str,
    function: str,
    call: int,
    step: str,
    words: str = "",
    *,
    is_slow: bool = False,
    is_silent: bool = False,
) -> Row:
    """Return the row of a call that never returns, or returns far too late."""
    failed = fault(function, Action.SLOW, call, FAR_TOO_SLOW_MS) if is_slow else fault(function, Action.HANG, call)
    return Row(program, failed, step, SILENCE if is_silent else EngineHung, words, HUNG_AFTER_S)


EXTRAS: Final = (
    Row("nvenc av1", fault("NvEncEncodePicture", Action.SHORT, 1), "later calls", EngineFailed, "truncated"),
    Row("nvenc av1", fault("NvEncLockBitstream", Action.SHORT, 4), "later calls", EngineFailed, "truncated"),
    Row("nvcuvid", fault("cuvidGetDecoderCaps", Action.STATUS, 1, 999), "first call", DeviceLost, "its capabilities"),
    Row("nvcuvid", fault("cuvidCreateVideoParser", Action.STATUS, 1, 1), "first call", DeviceError, "open a session"),
    hung("nvcuvid", "cuvidMapVideoFrame", 3, "first call", "decoding a picture"),
    hung("nvcuvid", "cuvidParseVideoData", 5, "first call", "decoding a picture"),
    hung("nvcuvid", "cuStreamSynchronize", 2, "first call"),
    hung("nvcuvid", "cuvidGetDecoderCaps", 1, "first call", is_silent=True),
    # The driver asks for more packets before this picture's packet, which then is missing.
    Row(
        "nvenc", fault("NvEncEncodePicture", Action.STATUS, 4, MORE), "later calls", EngineFailed, "nvEncLockBitstream"
    ),
    hung("nvenc", "NvEncGetEncodeCaps", 1, "opening", is_silent=True),
    hung("nvenc", "NvEncOpenEncodeSessionEx", 2, "opening"),
    hung("nvenc", "NvEncLockBitstream", 2, "later calls", "Encode"),
    # A call that returns too late has already been given up.
    hung("libcuda", "cuMemAlloc", 3, "later calls", "cuMemAlloc", is_slow=True),
    hung("nvenc", "NvEncEncodePicture", 3, "later calls", "Encode", is_slow=True),
    Row("cudla", fault("cudlaTask", Action.CORRUPT, 1), "first call", EngineFailed, "does not match"),
    Row("cudla", fault("cudlaTask", Action.CORRUPT, 3), "later calls", EngineFailed, "does not match"),
    hung("cudla", "cudlaTask", 3, "later calls", "in time"),
    Row("cudla", fault("cudlaTask", Action.LOSE, 1), "first call", DeviceLost),
    hung("cudla", "cudlaMemRegister", 1, "first call", "cudlaMemRegister"),
    hung("cudla", "cudlaGetLastError", 2, "later calls"),
    *(
        Row(program, fault(function, Action.STATUS, 1, 999), step, DeviceLost)
        for program, step, functions in (
            (
                "EGL",
                "opening",
                (
                    *("eglInitialize", "eglQueryDevicesEXT", "eglQueryStreamKHR"),
                    *("cuEGLStreamConsumerConnect", "cuEGLStreamProducerConnect"),
                ),
            ),
            (
                "EGL",
                "first call",
                (
                    *("cuEGLStreamProducerPresentFrame", "cuGraphicsResourceGetMappedEglFrame"),
                    *("eglQueryStreamu64KHR", "cuEGLStreamConsumerReleaseFrame"),
                ),
            ),
            ("EGL", "later calls", ("cuEGLStreamProducerReturnFrame",)),
            ("EGL", "closing", ("cuEGLStreamProducerDisconnect", "eglDestroyStreamKHR")),
            ("EGL image", "first call", ("cuGraphicsEGLRegisterImage",)),
        )
        for function in functions
    ),
    Row("EGL image", fault("cuGraphicsEGLRegisterImage", Action.STATUS, 2, 999), "first call", DeviceLost),
    Row("EGL image", fault("cuMemcpy2DAsync", Action.STATUS, 4, 999), "later calls", DeviceLost),
    Row("EGL image", fault("cuGraphicsUnregisterResource", Action.STATUS, 2, 999), "closing", DeviceLost),
    hung("EGL", "cuEGLStreamProducerReturnFrame", 1, "later calls", "cuEGLStreamProducerReturnFrame"),
    hung("EGL", "cuEGLStreamProducerConnect", 1, "opening"),
)
"""Faults in calls not covered by the tables above, where the same simulated fault leads to a different error."""
STANDALONE_CALLS: Final = {
    "opening": (
        *("cudlaCreateDevice", "cudlaSetTaskTimeoutInMs", "cudlaGetNvSciSyncAttributes"),
        *("cudlaImportExternalSemaphore", "NvSciSyncAttrListCreate", "NvSciSyncAttrListSetAttrs"),
        *("NvSciSyncAttrListReconcile", "NvSciSyncObjAlloc"),
    ),
    "first call": (
        *("cudlaModuleLoadFromMemory", "cudlaModuleGetAttributes", "cudlaImportExternalMemory", "cudlaSubmitTask"),
        *("cudlaGetLastError", "NvSciBufAttrListCreate", "NvSciBufAttrListSetAttrs", "NvSciBufAttrListReconcile"),
        *("NvSciBufObjGetCpuPtr", "NvSciBufObjGetAttrList", "NvSciBufAttrListGetAttrs"),
        *("NvSciSyncObjGenerateFence", "NvSciSyncObjSignal", "NvSciSyncCpuWaitContextAlloc"),
    ),
    "closing": ("cudlaMemUnregister", "cudlaModuleUnload", "cudlaDestroyDevice"),
}
"""For each stage, the functions with a status that a standalone session calls there for the first time.

Those in ``PLACES`` are left out.
"""
HANGING: Final = (
    "cudlaImportExternalSemaphore",
    "cudlaImportExternalMemory",
    "NvSciSyncObjSignal",
    "cudlaMemUnregister",
)


def standalone_rows() -> list[Row]:
    """Return the rows of a session without CUDA: each of its calls in turn, and its tasks."""
    rows = [
        Row("cudla standalone", fault("cudlaTask", Action.CORRUPT, 1), "first call", EngineFailed, "does not match"),
        hung("cudla standalone", "cudlaTask", 3, "later calls", "in time"),
        Row("cudla standalone", fault("cudlaTask", Action.EXIT, 2, EXIT_CODE), "later calls", PROCESS),
        Row("cudla standalone", fault("cudlaSubmitTask", Action.LOSE, 2), "later calls", DeviceLost),
    ]
    for step, functions in STANDALONE_CALLS.items():
        for function in functions:
            status = STATUSES["cudla" if function.startswith("cudla") else "nvscisync"]
            failed = fault(function, Action.STATUS, 1, status)
            rows.append(Row("cudla standalone", failed, step, DeviceLost, function.removeprefix("cudlaGetLastError")))
            if function in HANGING:
                rows.append(hung("cudla standalone", function, 1, step, "did not return"))
    return rows


ROWS: Final = (*stage_rows(), *EXTRAS, *standalone_rows())
