"""The command ``infer``: its options, and the job behind it."""

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import UsageError
from .options import parse_choice, parse_count, parse_counts, parse_path, parse_time
from .params import EndTime, JsonFlag, Source, StartTime, VideoTrack
from .question import Question
from .services import Answer, Commands, Services

if TYPE_CHECKING:
    from ..jobs.infer.plan import InferSpec

__all__ = ["COMMANDS", "AskInfer"]

_NUMBER: Final = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,18})?")
_NETWORK: Final = "The network"
_RUN: Final = "How the work is done"
_RULES: Final = "Output and rules"
_CHANNELS_MAX: Final = 3


def _option(name: str, metavar: str, text: str, panel: str) -> Any:  # noqa: ANN401 - typer's own return type
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


def _infer(
    source: Source,
    *,
    loadable: Annotated[
        str, _option("--loadable", "FILE", "The network, built for this DLA with TensorRT: docs/dla.md.", _NETWORK)
    ],
    output: Annotated[str, _option("--output", "FILE.npz", "Where the tensors and their times are written.", _RULES)],
    mean: Annotated[
        str | None,
        _option("--mean", "M[,M,M]", "Taken from each sample of 0 to 255: one for all channels, or each.", _NETWORK),
    ] = None,
    scale: Annotated[
        str | None, _option("--scale", "S[,S,S]", "What the rest is multiplied by. Default: 1.", _NETWORK)
    ] = None,
    channels: Annotated[
        str | None, _option("--channels", "rgb|bgr", "The order of the network's channels. Default: rgb.", _NETWORK)
    ] = None,
    dla: Annotated[
        list[str] | None, _option("--dla", "N", "Use this DLA of each machine, from 0. Repeatable. Default: all.", _RUN)
    ] = None,
    tasks_at_once: Annotated[
        str | None, _option("--tasks-at-once", "N", "Tasks queued together on a DLA, 1 to 64. Default: 4.", _RUN)
    ] = None,
    task_seconds: Annotated[
        str | None, _option("--task-seconds", "S", "How long one task may run on a DLA. Default: 10.", _RUN)
    ] = None,
    workers: Annotated[
        str | None, _option("--workers", "N", "Segments in flight at the same time. Default: two for each DLA.", _RUN)
    ] = None,
    segment_seconds: Annotated[
        str | None, _option("--segment-seconds", "S", "Length to aim for when cutting. Default: about 10.", _RUN)
    ] = None,
    start: StartTime = None,
    end: EndTime = None,
    video_track: VideoTrack = "0",
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", metavar="", help="Replace the output if it exists. Default: refuse.", rich_help_panel=_RULES
        ),
    ] = False,
    address: Annotated[
        str | None,
        _option(
            "--address",
            "RAY_ADDRESS",
            "Use this Ray cluster's DLAs (host:port). Default: the environment's RAY_ADDRESS, else this machine.",
            _RUN,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> Question:
    from ..actors.dla.inference.pictures import PixelRule
    from ..jobs.infer.plan import InferSpec

    order = _maybe(channels, "rgb", lambda text: parse_choice("--channels", text, ["rgb", "bgr"]))
    spec = InferSpec(
        source=parse_path("INPUT", source),
        loadable=parse_path("--loadable", loadable),
        output=_npz(parse_path("--output", output)),
        rule=PixelRule(
            mean=_maybe(mean, (0.0,), lambda text: _numbers("--mean", text)),
            scale=_maybe(scale, (1.0,), lambda text: _numbers("--scale", text)),
            order=order,
        ),
        devices=parse_counts("--dla", dla) if dla else None,
        tasks_at_once=_maybe(tasks_at_once, 4, lambda t: parse_count("--tasks-at-once", t, least=1, most=64)),
        task_limit_s=_maybe(task_seconds, 10.0, _task_limit_s),
        workers=_maybe(workers, None, lambda text: parse_count("--workers", text, least=1, most=10_000)),
        segment_s=_maybe(segment_seconds, None, lambda t: parse_time("--segment-seconds", t, positive=True)),
        start_s=_maybe(start, None, lambda text: parse_time("--start", text)),
        end_s=_maybe(end, None, lambda text: parse_time("--end", text, positive=True)),
        video_track=parse_count("--video-track", video_track, most=1_000),
        overwrite=overwrite,
    )
    if spec.start_s is not None and spec.end_s is not None and spec.end_s <= spec.start_s:
        message = f"--end must come after --start: {start} .. {end}"
        raise UsageError(message, "See codecfleet infer --help.")
    cluster = None if address is None else parse_path("--address", address)
    return Question(ask=AskInfer(spec, cluster), as_json=as_json, done_to_frames="inferred")


COMMANDS: Final[Commands] = {
    "infer": (
        _infer,
        [
            "infer film.mkv --loadable resnet.dla --output film.npz",
            "infer film.mkv --loadable resnet.dla --output film.npz --mean 123.7,116.3,103.5 --scale 0.017 --dla 1",
        ],
    )
}


@dataclass(frozen=True, slots=True)
class AskInfer:
    """The question behind the command: runs the job, and answers with its report.

    ``address`` is a Ray cluster's; None is the environment's, or a Ray of its own on this machine.
    """

    spec: "InferSpec"
    address: str | None = None

    def __call__(self, services: Services, progress: Callable[[int], None]) -> Answer:
        """Run it.

        Raises:
            Unsupported: there is no DLA. Where it would be this machine's, nothing was started then.
            CodecfleetError: the job failed.
        """
        del services
        from ..jobs.infer.job import count_dlas

        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        dlas = count_dlas(self.spec.devices) if address == "local" else 0  # before Ray is even imported
        return asyncio.run(_run(self.spec, address, dlas, progress))


async def _run(spec: "InferSpec", address: str, dlas: int, progress: Callable[[int], None]) -> Answer:
    from ..cluster.client.connected_pool import ConnectedPool
    from ..jobs.infer.job import infer

    pool = ConnectedPool(address, slots=None, dlas=dlas)
    try:
        report = await infer(spec, pool, progress=progress)
    finally:
        await pool.aclose()
    return Answer(report.lines(), report.to_json())


def _maybe(text: str | None, default: Any, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401 - what the parser returns
    return default if text is None else parse(text)


def _task_limit_s(text: str) -> float:
    limit_s = parse_time("--task-seconds", text, positive=True)
    if limit_s > 1000:  # noqa: PLR2004 - what cuDLA takes
        message = f"--task-seconds is more than 1000: {text}"
        raise UsageError(message, "cuDLA takes no more.")
    return float(limit_s)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    parts = text.split(",")
    if len(parts) not in (1, _CHANNELS_MAX) or not all(_NUMBER.fullmatch(part) for part in parts):
        message = f"{option} is not one number, or three with commas between: {text}"
        raise UsageError(message, "Write for example 0.017 or 123.7,116.3,103.5.")
    return tuple(float(part) for part in parts)


def _npz(path: str) -> str:
    if not path.endswith(".npz"):
        message = f"--output does not end in .npz: {path}"
        raise UsageError(message, "Tensors are written as NumPy's .npz.")
    return path
