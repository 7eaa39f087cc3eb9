"""A network over a film: segments fan out over the DLAs, and their tensors come together in one file, in order.

Segments are cut, proven at their seams, tried again and joined by the same rules as a transcode's (``board``).
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..actors.dla.host import require_dlas
from ..actors.dla.inference import InferredSegment
from ..actors.dla.network import loadable_digest, read_loadable, warm_networks
from ..cluster.pool import Pool
from ..errors import CodecfleetError, Unsupported
from .board import Board, Effect, Fail, Finished, Join, Lost, Run, decide, start_next
from .infer_gather import GatheredTensor, TensorGather
from .infer_plan import InferPlan, InferSpec, NetworksOf, plan_inference
from .publish import check_output, publish, work_folder
from .source import SourceStamp
from .spool import Spool
from .threads import come_what_may, in_thread, to_its_end

__all__ = ["InferReport", "InferSpec", "count_dlas", "infer"]

LANES_PER_DEVICE = 2
"""Segments in flight for each DLA: while one's pictures are decoded, the other's are inferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferReport:
    """What happened. ``segments_by_device`` counts segments by the number of the DLA that did them."""

    source: str
    output: str
    frames: int
    segments: int
    tensors: tuple[GatheredTensor, ...]
    segments_by_device: dict[int, int]
    warnings: tuple[str, ...]
    infer_s: float
    wall_s: float

    def lines(self) -> list[str]:
        """Return it for a person, a line each."""
        shares = ", ".join(f"DLA {device}: {count}" for device, count in sorted(self.segments_by_device.items()))
        speed = self.frames / self.wall_s if self.wall_s else 0.0
        return [
            f"{self.source} -> {self.output}",
            f"{self.frames} frames in {self.segments} segments ({shares}), {self.wall_s:.1f} s, {speed:.0f} fps",
            *(f"tensor {each.name}: {' x '.join(map(str, each.shape))} {each.dtype}" for each in self.tensors),
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; docs/cli.md describes them."""
        return {
            "schema": 1,
            "source": self.source,
            "output": self.output,
            "frames": self.frames,
            "segments": self.segments,
            "tensors": [{"name": t.name, "shape": list(t.shape), "dtype": str(t.dtype)} for t in self.tensors],
            "segments_by_device": {str(device): count for device, count in sorted(self.segments_by_device.items())},
            "warnings": list(self.warnings),
            "infer_s": self.infer_s,
            "wall_s": self.wall_s,
        }


def count_dlas() -> int:
    """Return how many DLAs this machine has.

    Raises:
        Unsupported: it has none.
    """
    return require_dlas()[1]


async def infer(
    spec: InferSpec,
    pool: Pool,
    *,
    count: Callable[[], int] = count_dlas,
    networks: NetworksOf = warm_networks,
) -> InferReport:
    """Run a network over a source, and write its tensors; leave either the complete output or nothing.

    Args:
        spec: what is asked for.
        pool: where segments run; it is started once everything else is known to be sound. Its workers must see the
            DLAs of this machine.
        count: how many DLAs there are; asked before anything else.
        networks: the networks of the process in which a segment runs.

    Raises:
        Unsupported: there is no DLA, or not the one asked for; or the loadable does not run on it.
        CodecfleetError: the job failed.
    """
    spec = spec.resolved()
    devices = _devices(spec, await in_thread(count))
    await in_thread(check_output, spec.source, spec.output, overwrite=spec.overwrite)
    digest = loadable_digest(await in_thread(read_loadable, spec.loadable))
    stamp = await in_thread(SourceStamp.of, spec.source)
    plan = await in_thread(plan_inference, spec, digest)
    await pool.start()
    job = secrets.token_hex(4)
    spool = Spool(work_folder(spec.output, job))
    try:
        await to_its_end(spool.open)
        run = _InferRun(job, plan, pool, devices, networks, stamp, TensorGather(spool.folder))
        return await run.report()
    except Exception:
        await in_thread(stamp.check)  # whatever else went wrong, a source that changed explains it
        raise
    finally:
        await asyncio.shield(in_thread(spool.remove))


def _devices(spec: InferSpec, count: int) -> tuple[int, ...]:
    if spec.devices is None:
        return tuple(range(count))
    missing = [device for device in spec.devices if device >= count]
    if missing:
        message = f"there is no DLA {missing[0]}: this machine has {count}, counted from 0"
        raise Unsupported(message, "Choose among those, or leave --dla out for all of them.")
    return tuple(dict.fromkeys(spec.devices))


@dataclass(slots=True)
class _InferRun:
    """The running of one job."""

    job: str
    plan: InferPlan
    pool: Pool
    devices: tuple[int, ...]
    networks: NetworksOf
    stamp: SourceStamp
    gather: TensorGather
    _began: float = field(default_factory=time.monotonic)
    _runs: dict[asyncio.Task[InferredSegment], tuple[Run, int]] = field(default_factory=dict)
    _results: dict[int, InferredSegment] = field(default_factory=dict)
    _shares: Counter[int] = field(default_factory=Counter)
    _damaged: int = 0
    _infer_s: float = 0.0

    async def report(self) -> InferReport:
        """Run every segment, join them, publish."""
        spec = self.plan.spec
        try:
            await self._run_all()
        finally:
            for task in self._runs:
                task.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)
        base = self.plan.index.time_base
        path = await to_its_end(self.gather.finish, (base.numerator, base.denominator))
        await in_thread(self.stamp.check)
        await come_what_may(publish, path, spec.output, overwrite=spec.overwrite)
        return InferReport(
            source=spec.source,
            output=spec.output,
            frames=self.gather.frames,
            segments=sum(self._shares.values()),
            tensors=self.gather.tensors,
            segments_by_device=dict(self._shares),
            warnings=tuple(self._warnings()),
            infer_s=self._infer_s,
            wall_s=time.monotonic() - self._began,
        )

    async def _run_all(self) -> None:
        lanes = self.plan.spec.workers or LANES_PER_DEVICE * len(self.devices)
        board = Board.of([segment.frames for segment in self.plan.segments])
        while not board.is_done:
            board, runs = start_next(board, lanes)
            for run in runs:
                self._start(run)
            done, _ = await asyncio.wait(self._runs, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in self._runs if task in done]:
                board, effects = decide(board, await self._fact(task))
                await self._apply(effects)

    def _start(self, run: Run) -> None:
        """Submit a segment to the DLA that has least to do."""
        busy = Counter(device for _, device in self._runs.values())
        device = min(self.devices, key=lambda number: (busy[number], self._shares[number], number))
        work = self.plan.work(self.job, run, device, self.networks)
        self._runs[asyncio.create_task(self.pool.submit(work), name=work.label)] = (run, device)

    async def _fact(self, task: asyncio.Task[InferredSegment]) -> Finished | Lost:
        run, _ = self._runs.pop(task)
        try:
            result = task.result()
        except CodecfleetError as error:
            return Lost(run.segment, error)
        await in_thread(self.stamp.check)
        self._results[run.segment] = result
        entry = self.plan.decode(run).entry
        return Finished(
            run.segment,
            run.until,
            result.seam_before,
            result.seam_after,
            at_start=entry is None,
            sound=self.plan.index.is_sound(entry, result.first_damaged_packet),
        )

    async def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fail):
                raise effect.error
            if isinstance(effect, Join):
                result = self._results.pop(effect.segment)
                await to_its_end(self.gather.join, result)
                self._shares[result.device] += 1
                self._damaged += result.first_damaged_packet is not None
                self._infer_s += result.infer_s

    def _warnings(self) -> list[str]:
        warnings = list(self.pool.notes)
        if self._damaged:
            warnings.append(f"{self._damaged} segments met damage; what could be decoded was inferred")
        if self.gather.frames != self.plan.frames:
            warnings.append(f"the index promises {self.plan.frames} frames, and {self.gather.frames} were decoded")
        return warnings
