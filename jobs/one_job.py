"""The calls that run one job, on a fleet that is closed afterwards: the public API beside ``Fleet``."""

import asyncio
from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from ..errors import UsageError
from .board.threads import is_in_loop
from .fleet import Fleet
from .ladder.spec import LadderSpec
from .report.events import Event
from .report.report import Report
from .request.options import build
from .request.spec import TranscodeSpec
from .request.values import location
from .stills.spec import StillsSpec

if TYPE_CHECKING:
    from .ladder.report import LadderReport
    from .stills.job import StillsReport

SpecT = TypeVar("SpecT", bound=BaseModel)


def transcode(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> Report:
    """Transcode one file, wait for the job and return its report. ``options`` are the fields of ``TranscodeSpec``.

    Raises:
        UsageError: options are invalid.
        CodecfleetError: the job failed; nothing is left under the output's name.
    """
    _refuse_in_loop("transcode")
    return asyncio.run(transcode_async(source, output, address=address, **options))


async def transcode_async(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> Report:
    """Run ``transcode`` without blocking the event loop. Cancelling the call cancels the job."""
    spec = _built(TranscodeSpec, source, output, options, "docs/config.md")
    async with Fleet(address, workers=spec.workers) as fleet:
        return await (await fleet.transcode(spec))


def _built(
    model: type[SpecT], source: str | PathLike[str], output: str | PathLike[str], options: dict[str, object], page: str
) -> SpecT:
    names = {"source": location("source", source), "output": location("output", output)}
    return build(model, names | options, str, f"{page} lists every option.")


def _refuse_in_loop(name: str) -> None:
    if is_in_loop():
        message = f"{name}() blocks, and an event loop is running here"
        raise UsageError(message, f"Use `await {name}_async(...)`, or a Fleet: docs/api.md.")


def stills(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> "StillsReport":
    """Take stills of one file into the folder ``output``, and wait for them. ``options`` are ``StillsSpec``'s fields.

    Raises:
        UsageError: options are invalid.
        CodecfleetError: the job failed; nothing is left under the folder's name.
    """
    _refuse_in_loop("stills")
    return asyncio.run(stills_async(source, output, address=address, **options))


async def stills_async(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> "StillsReport":
    """Run ``stills`` without blocking the event loop. Cancelling the call cancels the job."""
    return await run_stills(_built(StillsSpec, source, output, options, "docs/stills.md"), address)


async def run_stills(
    spec: StillsSpec,
    address: str | None,
    progress: Callable[[int], None] = lambda _frames: None,
    *,
    keeps_record: bool = False,
) -> "StillsReport":
    """Take stills on a new fleet, which is then closed."""
    async with Fleet(address, workers=spec.workers) as fleet:
        return await fleet.stills(spec, progress=progress, keeps_record=keeps_record)


def ladder(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> "LadderReport":
    """Make a ladder of one file in the folder ``output``, and wait for it. ``options`` are ``LadderSpec``'s fields.

    Raises:
        UsageError: options are invalid.
        CodecfleetError: the job failed; nothing is left under the folder's name.
    """
    _refuse_in_loop("ladder")
    return asyncio.run(ladder_async(source, output, address=address, **options))


async def ladder_async(
    source: str | PathLike[str], output: str | PathLike[str], *, address: str | None = None, **options: object
) -> "LadderReport":
    """Run ``ladder`` without blocking the event loop. Cancelling the call cancels the job."""
    return await run_ladder(_built(LadderSpec, source, output, options, "docs/ladder.md"), address)


async def run_ladder(
    spec: LadderSpec,
    address: str | None,
    tell: Callable[[Event], None] = lambda _event: None,
    *,
    keeps_record: bool = False,
) -> "LadderReport":
    """Make a ladder on a new fleet, which is then closed."""
    async with Fleet(address, workers=spec.workers) as fleet:
        return await fleet.ladder(spec, tell=tell, keeps_record=keeps_record)
