"""codecfleet: one video, many workers, one exact file.

    async with Fleet() as fleet:
        job = await fleet.transcode(TranscodeSpec(source="in.mkv", output="out.mp4", codec="hevc"))
        async for event in job.events():
            print(event)
        report = await job

``transcode("in.mkv", "out.mp4")`` does the same in one blocking call. Each blocking call has an asynchronous form,
whose name ends in ``_async``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actors.decode.nvdec_options import NvdecOptions
    from .actors.encode.settings import Codec, RateChange
    from .actors.media.values import SeiMessage
    from .actors.nvidia.egl import EglImage, EglStream
    from .actors.surfaces.frames import Frame
    from .actors.tensors.frame_batch import FrameBatch
    from .actors.tensors.tensor_format import TensorFormat
    from .cluster.queue.queue import Queue
    from .cluster.queue.values import QueuedJob, QueueState
    from .errors import (
        Cancelled,
        CodecfleetError,
        InputError,
        RequestError,
        UsageError,
        WorkError,
    )
    from .jobs.awaited import plan_transcode_async, probe_async, verify_async
    from .jobs.batch.batch import Batch
    from .jobs.batch.results import BatchProgress, BatchResult
    from .jobs.clips.dataset import ClipDataset, FilmClip
    from .jobs.clips.sampling import (
        clips_at_random_indices,
        clips_at_random_times,
        clips_at_regular_indices,
        clips_at_regular_times,
    )
    from .jobs.encode.job import encode
    from .jobs.encode.present import PresentReport, present
    from .jobs.encode.request import EncodeFrame, EncodeReport
    from .jobs.fleet import Fleet
    from .jobs.fleet_frames.film import FleetFrames, FleetSelection
    from .jobs.frames.chosen import FrameSelection
    from .jobs.frames.request import FramesReport
    from .jobs.frames.stream import FrameStream, frames
    from .jobs.job import Job
    from .jobs.ladder.report import LadderReport
    from .jobs.ladder.spec import LadderSpec
    from .jobs.one_job import ladder, ladder_async, stills, stills_async, transcode, transcode_async
    from .jobs.packets.decoder import Decoder
    from .jobs.packets.encoder import Encoder
    from .jobs.packets.packet import Packet
    from .jobs.plan.plan import Plan, plan_transcode
    from .jobs.probe.job import probe
    from .jobs.probe.lines import ProbeReport
    from .jobs.report.events import Done, Event, Failed, Planned, Progress, SegmentFinished, SegmentStarted, Warned
    from .jobs.report.report import Report
    from .jobs.request.config import Config, load_config
    from .jobs.request.presets import load_preset
    from .jobs.request.spec import BatchSpec, TranscodeSpec
    from .jobs.request.spec_file import load_spec
    from .jobs.stills.job import StillsReport
    from .jobs.stills.spec import StillsSpec
    from .jobs.verify.job import verify
    from .jobs.verify.verdict import Verdict

__all__ = [
    "Batch",
    "BatchProgress",
    "BatchResult",
    "BatchSpec",
    "Cancelled",
    "ClipDataset",
    "Codec",
    "CodecfleetError",
    "Config",
    "Decoder",
    "Done",
    "EglImage",
    "EglStream",
    "EncodeFrame",
    "EncodeReport",
    "Encoder",
    "Event",
    "Failed",
    "FilmClip",
    "Fleet",
    "FleetFrames",
    "FleetSelection",
    "Frame",
    "FrameBatch",
    "FrameSelection",
    "FrameStream",
    "FramesReport",
    "InputError",
    "Job",
    "LadderReport",
    "LadderSpec",
    "NvdecOptions",
    "Packet",
    "Plan",
    "Planned",
    "PresentReport",
    "ProbeReport",
    "Progress",
    "Queue",
    "QueueState",
    "QueuedJob",
    "RateChange",
    "Report",
    "RequestError",
    "SegmentFinished",
    "SegmentStarted",
    "SeiMessage",
    "StillsReport",
    "StillsSpec",
    "TensorFormat",
    "TranscodeSpec",
    "UsageError",
    "Verdict",
    "Warned",
    "WorkError",
    "__version__",
    "clips_at_random_indices",
    "clips_at_random_times",
    "clips_at_regular_indices",
    "clips_at_regular_times",
    "encode",
    "frames",
    "ladder",
    "ladder_async",
    "load_config",
    "load_preset",
    "load_spec",
    "plan_transcode",
    "plan_transcode_async",
    "present",
    "probe",
    "probe_async",
    "stills",
    "stills_async",
    "transcode",
    "transcode_async",
    "verify",
    "verify_async",
]

_HOMES = {
    "actors.encode.settings": ("Codec", "RateChange"),
    "actors.surfaces.frames": ("Frame",),
    "actors.media.values": ("SeiMessage",),
    "actors.tensors.frame_batch": ("FrameBatch",),
    "actors.tensors.tensor_format": ("TensorFormat",),
    "actors.nvidia.egl": ("EglImage", "EglStream"),
    "actors.decode.nvdec_options": ("NvdecOptions",),
    "cluster.queue.queue": ("Queue",),
    "cluster.queue.values": ("QueuedJob", "QueueState"),
    "errors": ("Cancelled", "CodecfleetError", "InputError", "RequestError", "UsageError", "WorkError"),
    "jobs.awaited": ("plan_transcode_async", "probe_async", "verify_async"),
    "jobs.batch.batch": ("Batch",),
    "jobs.batch.results": ("BatchProgress", "BatchResult"),
    "jobs.encode.job": ("encode",),
    "jobs.encode.present": ("PresentReport", "present"),
    "jobs.encode.request": ("EncodeFrame", "EncodeReport"),
    "jobs.report.events": (
        "Done",
        "Event",
        "Failed",
        "Planned",
        "Progress",
        "SegmentFinished",
        "SegmentStarted",
        "Warned",
    ),
    "jobs.fleet": ("Fleet",),
    "jobs.one_job": ("ladder", "ladder_async", "stills", "stills_async", "transcode", "transcode_async"),
    "jobs.fleet_frames.film": ("FleetFrames", "FleetSelection"),
    "jobs.clips.sampling": (
        "clips_at_random_indices",
        "clips_at_random_times",
        "clips_at_regular_indices",
        "clips_at_regular_times",
    ),
    "jobs.clips.dataset": ("ClipDataset", "FilmClip"),
    "jobs.frames.chosen": ("FrameSelection",),
    "jobs.frames.request": ("FramesReport",),
    "jobs.frames.stream": ("FrameStream", "frames"),
    "jobs.job": ("Job",),
    "jobs.packets.decoder": ("Decoder",),
    "jobs.packets.encoder": ("Encoder",),
    "jobs.packets.packet": ("Packet",),
    "jobs.plan.plan": ("Plan", "plan_transcode"),
    "jobs.probe.job": ("probe",),
    "jobs.probe.lines": ("ProbeReport",),
    "jobs.report.report": ("Report",),
    "jobs.request.config": ("Config", "load_config"),
    "jobs.request.presets": ("load_preset",),
    "jobs.request.spec": ("BatchSpec", "TranscodeSpec"),
    "jobs.request.spec_file": ("load_spec",),
    "jobs.ladder.report": ("LadderReport",),
    "jobs.ladder.spec": ("LadderSpec",),
    "jobs.stills.job": ("StillsReport",),
    "jobs.stills.spec": ("StillsSpec",),
    "jobs.verify.job": ("verify",),
    "jobs.verify.verdict": ("Verdict",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import public names on first use, so that workers and ``--help`` import only what they need."""
    if name == "__version__":
        from .cluster.version import installed

        return installed("codecfleet") or "0+checkout"
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all public names, including those that are not imported yet."""
    return sorted(__all__)
