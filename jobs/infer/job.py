"""Runs a network over a film: segments fan out over DLAs, and their tensors are joined in order."""

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...actors.background import SharedCall
from ...actors.dla.engine import DlaMode, require_dlas
from ...actors.dla.inference import InferredSegment, read_loadable, warm_networks
from ...cluster.fleet.pool import Pool
from ...cluster.grouping import counted
from ...errors import Unsupported
from ..board.fan_out import fan_out
from ..board.loop import finished
from ..board.reach import SourceReach
from ..board.threads import in_thread, shielded, uncancellable
from ..join.publish import check_output, publish
from ..journal.publish_record import RecordedWork
from ..source.source import SourceStamp
from .gather import GatheredTensor, TensorGather
from .plan import InferPlan, NetworksOf, plan_inference
from .spec import InferSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class InferReport:
    """The result of ``infer``."""

    source: str
    output: str
    frames: int
    segments: int
    tensors: tuple[GatheredTensor, ...]
    segments_by_device: dict[tuple[str, int], int]  #: number of segments for each (machine, DLA number)
    warnings: tuple[str, ...]
    infer_s: float  #: the sum of all segments' times
    wall_s: float

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        shares = ", ".join(f"{host} DLA {dla}: {n}" for (host, dla), n in sorted(self.segments_by_device.items()))
        speed = self.frames / self.wall_s if self.wall_s else 0.0
        return [
            f"{self.source} -> {self.output}",
            f"{self.frames} frames in {self.segments} segments ({shares}), {self.wall_s:.1f} s, {speed:.0f} fps",
            *(f"tensor {each.name}: {' x '.join(map(str, each.shape))} {each.dtype}" for each in self.tensors),
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values; docs/cli.md describes them."""
        return {
            "schema": 1,
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "tensors": [{"name": t.name, "shape": list(t.shape), "dtype": str(t.dtype)} for t in self.tensors],
            "segments_by_device": {f"{host}/{dla}": n for (host, dla), n in sorted(self.segments_by_device.items())},
            "warnings": list(self.warnings),
        }


def count_dlas(devices: tuple[int, ...] | None, mode: str = "hybrid") -> int:
    """Return how many DLAs this machine has.

    Raises Unsupported: one of ``devices`` or a library for ``mode`` is missing.
    """
    count = require_dlas(DlaMode[mode.upper()])
    missing = [device for device in devices or () if device >= count]
    if missing:
        message = f"there is no DLA {missing[0]}: this machine has {count}, counted from 0"
        raise Unsupported(message, "Choose a lower number, or leave --dla out to use all DLAs.")
    return count


async def infer(
    spec: InferSpec,
    pool: Pool,
    *,
    networks: NetworksOf = warm_networks,
    progress: Callable[[int], None] = lambda _frames: None,
    keeps_record: bool = False,
) -> InferReport:
    """Run a network over a source, and write the resulting tensors. Leave either the complete output or nothing.

    ``networks`` returns the networks of the process in which a segment runs. ``progress`` is called a few times a
    second with the number of frames done. With ``keeps_record``, the work folder keeps a record, which allows the same
    request to replace the output.

    Raises:
        Unsupported: the pool has no DLA, or not the requested one; or the loadable does not run there.
        CodecfleetError: the job failed.
    """
    spec = spec.resolved()
    work = RecordedWork(spec, spec.output, spec.output)
    may_replace = spec.overwrite or await in_thread(work.may_replace)
    await in_thread(check_output, spec.source, spec.output, overwrite=may_replace)
    loadable = await in_thread(read_loadable, spec.loadable)
    stamp = await in_thread(SourceStamp.of, spec.source)
    start = SharedCall(pool.start(), "the workers' start")  # during the planning
    plan = await in_thread(plan_inference, spec, loadable)
    await start.wait()
    job = secrets.token_hex(4)
    if reason := (await pool.preview(plan.demand(job))).never:
        raise Unsupported(reason, "Inference needs a Jetson or DRIVE with DLAs (Xavier, Orin): docs/dla.md.")
    try:
        async with work.opened(keeps_record=keeps_record) as folder:
            return await _InferRun(job, plan, pool, networks, stamp, work, TensorGather(folder), progress).report()
    except Exception as error:  # any failure may be due to a changed source
        await in_thread(stamp.explain, error)
        raise


@dataclass(slots=True)
class _InferRun:
    job: str
    plan: InferPlan
    pool: Pool
    networks: NetworksOf
    stamp: SourceStamp
    work: RecordedWork
    gather: TensorGather
    progress: Callable[[int], None]
    _began: float = field(default_factory=time.monotonic)
    _shares: Counter[tuple[str, int]] = field(default_factory=Counter)
    _damaged: int = 0
    _infer_s: float = 0.0

    async def report(self) -> InferReport:
        """Run all segments, join their results, and publish the output."""
        spec, plan = self.plan.spec, self.plan
        again = await fan_out(
            SourceReach(self.pool, self.stamp, spec.ship),
            plan.demand(self.job),
            spec,
            work=lambda run: plan.work(self.job, run, self.networks),
            end=lambda run, result: finished(run, result.tally, plan.decode(run).entry, plan.ranges.index),
            take=self._take,
            frames=lambda result: len(result.pts_ticks),
            progress=lambda frames: self.progress(min(plan.ranges.frames, frames)),
            may_fall_back=False,
        )
        base = plan.ranges.index.time_base
        path = await shielded(self.gather.finish, (base.numerator, base.denominator))
        await in_thread(self.stamp.check)
        may_replace = spec.overwrite or await in_thread(self.work.may_replace)
        await in_thread(self.work.record, path)
        await uncancellable(publish, path, spec.output, overwrite=may_replace)
        return InferReport(
            source=spec.source,
            output=spec.output,
            frames=self.gather.frames,
            segments=sum(self._shares.values()),
            tensors=self.gather.tensors,
            segments_by_device=dict(self._shares),
            warnings=(*self.pool.state.notes, *again, *self._warnings()),
            infer_s=self._infer_s,
            wall_s=time.monotonic() - self._began,
        )

    def _take(self, result: InferredSegment) -> None:
        self.gather.join(result)
        self._shares[result.host, result.device] += 1
        self._damaged += result.tally.damaged
        self._infer_s += result.infer_s

    def _warnings(self) -> list[str]:
        warnings = []
        if self._damaged:
            where = counted(self._damaged, "segment")
            warnings.append(f"damage in {where}: the network ran only on pictures that could be decoded")
        promised, decoded = self.plan.ranges.frames, self.gather.frames
        if decoded != promised:
            warnings.append(f"the index promises {promised} frames, but {decoded} were decoded")
        return warnings
