"""Finds where a plan would run: the plan's demand, and its placement as text and JSON. Nothing is started."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from av.video.format import VideoFormat as PixelFormat

from ...actors.media.location import name_of
from ...actors.segment.decode_path import METADATA_IN_SOFTWARE
from ...actors.segment.targeting import sample_memory_bytes
from ...actors.settle.nvenc import nvenc_unsupported_reason
from ...actors.settle.software import codes_interlaced
from ...cluster.grouping import counted, equal_groups, number_ranges, short_names
from ...cluster.placement.assign import LaneSchedule, Prediction, place, predict
from ...cluster.placement.model import (
    USUAL_THREADS,
    Demand,
    Device,
    DeviceState,
    EncoderChoice,
    EncoderKind,
    Inventory,
    Placement,
    Policy,
    Refusal,
    Rendition,
)
from ...cluster.placement.rates import Rates, start_rates
from ...cluster.probes.report import CodecCase, Direction, Engine, MediaCodec
from ...cluster.text_lines import wrapped
from ...errors import NotEnoughMemory, Unsupported, redacted
from .plan import Plan

if TYPE_CHECKING:
    from ...cluster.fleet.pool import Pool

INTERLACED_IN_SOFTWARE: Final = "the pictures are interlaced, and PyNvVideoCodec always deinterlaces"
"""Why no GPU decodes interlaced pictures."""
CPU_ONLY: Final = "the job uses only CPUs"
"""Why no GPU decodes with ``device="cpu"``."""
LANES_SHOWN: Final = 24
_CASES_KEPT: Final = 256
_NO_DRIVER_STEP: Final = (
    "If this machine has an NVIDIA GPU, install the driver, or start the container with --gpus all; see codecfleet "
    "doctor. Otherwise leave the option out."
)
_BY_FFMPEG: Final = {"mpeg2video": MediaCodec.MPEG2, "mjpeg": MediaCodec.JPEG, "vc1": MediaCodec.VC1}
_CHROMA: Final = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0"}
_SIDE: Final = 16
_GRAY_AND_ALPHA: Final = 2


def demand_of(plan: Plan, job: str = "plan") -> Demand:
    """Return a plan's demand while the kind of encoder is undecided: any encoder that the job allows may serve it."""
    video = plan.carry.video
    picture = plan.encoder.format
    rendition = Rendition(
        case=media_case(plan.encoder.codec.value, Direction.ENCODE, picture.pix_fmt),
        width=picture.width,
        height=picture.height,
        software=plan.encoder.implementation,
        preset=str(plan.spec.preset),
        threads=USUAL_THREADS if plan.encoder.on_device else plan.encoder.threads,
    )
    source = plan.source_format
    return Demand(
        job=job,
        segments=tuple(segment.frames for segment in plan.segments),
        decode=media_case(video.codec if video is not None else None, Direction.DECODE, source.pix_fmt),
        width=source.width,
        height=source.height,
        renditions=(rendition,),
        encoder=_encoder_choice(plan),
        software_decode=CPU_ONLY if plan.spec.device == "cpu" else device_unsupported_reason(plan),
        needs_gpu=plan.spec.device == "gpu",
        has_filters=(source.width, source.height, source.pix_fmt) != (picture.width, picture.height, picture.pix_fmt)
        or plan.filters.needs_software,
        filter_bytes=plan.filters.kept_bytes + sample_memory_bytes(plan.encoder),
        frames_total=plan.frames,
        workers_max=plan.spec.workers,
        priority=plan.spec.priority,
        weight=Fraction(plan.spec.weight),
        finish_within_s=plan.spec.finish_within_s,
        title=name_of(redacted(plan.spec.source)),
    )


def settled_demand(plan: Plan, job: str) -> Demand:
    """Return a plan's demand once the kind of encoder is decided; only workers with that kind can take the work."""
    demand = demand_of(plan, job)
    if plan.kind is None:
        return replace(demand, encoder=EncoderChoice.SOFTWARE)
    rendition = replace(demand.renditions[0], kind=plan.kind)
    return replace(demand, encoder=EncoderChoice.NVENC, renditions=(rendition,))


def _encoder_choice(plan: Plan) -> EncoderChoice:
    if plan.spec.encoder == "nvenc":
        return EncoderChoice.NVENC
    problem = nvenc_unsupported_reason(plan.encoder.codec, plan.encoder.format)
    return EncoderChoice.SOFTWARE if plan.nvenc is None or problem or _nvenc_loss(plan) else EncoderChoice.AUTO


def _nvenc_loss(plan: Plan) -> str:
    """Return the properties that NVENC would lose but software keeps, in words; "" if there are none."""
    if codes_interlaced(plan.encoder.codec, plan.encoder.format):
        return "the field order"
    if plan.encoder.dolby_vision:
        return "Dolby Vision's metadata"
    return "closed captions" if plan.extras.captions else ""


def device_unsupported_reason(plan: Plan) -> str:
    """Return why no GPU may decode a plan's input; "" if a GPU may."""
    if plan.encoder.dolby_vision:
        return METADATA_IN_SOFTWARE
    if plan.source_format.interlaced:
        return INTERLACED_IN_SOFTWARE
    if plan.extras.captions:
        return "only software decoding keeps closed captions"
    return plan.extras.device_unsupported_reason


async def check_device(demand: Demand, pool: "Pool") -> None:
    """Raise Unsupported if a job needs a GPU, but no GPU may decode the input, or none will ever be available."""
    if not demand.needs_gpu:
        return
    reason = (await pool.preview(demand)).never
    if demand.software_decode and (reason or demand.encoder is EncoderChoice.SOFTWARE):
        # A GPU that encodes satisfies the request, even if software decodes.
        reason = demand.software_decode
    if reason:
        raise Unsupported(f"--device gpu is not possible: {reason}", "Leave --device at auto.")


def check_driver(plan: Plan) -> None:
    """Raise Unsupported if a job needs a GPU. Call this if a machine without an NVIDIA driver runs the job alone."""
    asked = "--encoder nvenc" if plan.spec.encoder == "nvenc" else "--device gpu"
    if plan.spec.encoder == "nvenc" or plan.spec.device == "gpu":
        message = f"{asked} is not possible: this machine has no NVIDIA driver (libnvidia-ml.so.1 is missing)"
        raise Unsupported(message, _NO_DRIVER_STEP)


def check_memory(demand: Demand, inventory: Inventory) -> None:
    """Raise NotEnoughMemory if no machine has enough memory for one segment of a job."""
    for refusal in place([demand], inventory, start_rates(), Policy()).refusals:
        if refusal.is_too_large:
            raise NotEnoughMemory(refusal.reason, NotEnoughMemory.WHAT_NEXT)


@lru_cache(_CASES_KEPT)
def media_case(codec_name: str | None, direction: Direction, pix_fmt: str) -> CodecCase:
    """Return the case that an engine must support for a codec (None if unknown) and a pixel format.

    Both have FFmpeg's names.
    """
    known = {codec.value: codec for codec in MediaCodec} | _BY_FFMPEG
    codec = known.get(codec_name or "", MediaCodec.OTHER)
    layout = PixelFormat(pix_fmt, _SIDE, _SIDE)
    components = layout.components
    if len(components) <= _GRAY_AND_ALPHA:
        return CodecCase(codec, direction, "4:0:0", components[0].bits)
    ratio = (1, 1) if layout.is_rgb else (_SIDE // components[1].width, _SIDE // components[1].height)
    chroma = _CHROMA.get(ratio, f"1/{ratio[0]} x 1/{ratio[1]}")
    return CodecCase(codec, direction, chroma, components[0].bits)


def place_plan(
    demand: Demand, inventory: Inventory, rates: Rates, policy: Policy, *, where: str, note: str = ""
) -> "PlacedPlan":
    """Place one demand on otherwise idle machines; ``where`` names them, and ``note`` is an extra line to print."""
    placement = place([demand], inventory, rates, policy)
    return PlacedPlan(demand, inventory, policy, placement, predict(demand, placement, rates.hardware), where, note)


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """A demand placed on machines: lanes, refusals, and the predicted time."""

    demand: Demand
    inventory: Inventory
    policy: Policy
    placement: Placement
    prediction: Prediction
    where: str  #: The machines, in words
    note: str  #: An extra line to print; "" for none

    @property
    def _devices(self) -> dict[str, Device]:
        return {device.device: device for node in self.inventory.nodes for device in node.devices}

    @property
    def kinds(self) -> tuple[EncoderKind, ...]:
        """Return the kind of encoder for each track; () if nothing could be placed."""
        return self.placement.lanes[0].kinds if self.placement.lanes else ()

    @property
    def expected(self) -> EncoderKind | None:
        """Return the NVENC that will write the track; None if software will write it, or if nothing could be placed."""
        return next((kind for kind in self.kinds if kind.is_nvenc), None)

    def lines(self) -> list[str]:
        """Return the placement as lines of text."""
        return [*self._head(), *self._lanes(), *self._refusals(), *self._end()]

    def summary(self) -> str:
        """Return the placement in one line."""
        if self.prediction.wall_s is None:
            return f"not placed on {self.where}: {self.placement.refusals[0].reason}"
        devices = ", ".join(
            f"{lane.route.value} with {counted(lane.sessions, 'session')} at {lane.fps:.1f} fps"
            for lane in self.placement.lanes
        )
        return f"placed on {self.where}: {devices}, about {self.prediction.wall_s:.0f} s at documented speeds"

    def _head(self) -> Iterator[str]:
        yield from wrapped(f"placed on {self.where}: {_counted(self.inventory)}", "")
        if self.note:
            yield from wrapped(f"note: {self.note}", "")
        for rendition, kind in zip(self.demand.renditions, self.kinds, strict=False):
            track = f"{rendition.case.codec.value} {rendition.width}x{rendition.height}"
            name = f"{kind.implementation} ({kind.place})" if kind.architecture else kind.implementation
            yield from wrapped(f"{track} is encoded by {name}: {self._why(kind, rendition)}", "")

    def _why(self, kind: EncoderKind, rendition: Rendition) -> str:
        if rendition.kind is not None:
            return "the track was started with this encoder"
        if self.demand.encoder is not EncoderChoice.AUTO:
            return f"the job asks for {self.demand.encoder.value}"
        if Engine.NVENC not in self.policy.engines:
            return "the policy excludes NVENC"
        able = any(
            device.can(rendition.case, Engine.NVENC) and device.state is DeviceState.OPEN
            for device in self._devices.values()
            if device.engines.get(Engine.NVENC, 0) > 0
        )
        return "it finishes soonest" if kind.is_nvenc or able else "no available NVENC can encode it"

    def _lanes(self) -> Iterator[str]:
        devices = self._devices
        groups = equal_groups(self.prediction.lanes, lambda entry: _lane_key(entry, devices))
        reason = ""
        for group in groups[:LANES_SHOWN]:
            lane = group[0].lane
            if lane.reason != reason:
                reason = lane.reason
                yield from wrapped(f"{lane.route.value}: {reason}", "")
            yield from wrapped(f"{_who(group, devices)}: {_lane_text(group)}", "  ")
        rest = [entry.lane for group in groups[LANES_SHOWN:] for entry in group]
        if rest:
            sessions, fps = sum(lane.sessions for lane in rest), sum(lane.fps for lane in rest)
            yield f"  and {len(rest)} more devices with {counted(sessions, 'session')}, {fps:.0f} fps"

    def _refusals(self) -> Iterator[str]:
        devices = self._devices
        for refusal in self.placement.refusals:
            where = f"not on {_refused(refusal, devices)}" if refusal.devices else "nowhere"
            yield from wrapped(f"{where}: {refusal.reason}", "")

    def _end(self) -> Iterator[str]:
        prediction = self.prediction
        if prediction.wall_s is None:
            return
        lanes = self.placement.lanes
        fps = sum(lane.fps for lane in lanes)
        yield from wrapped(
            f"predicted: {prediction.wall_s:.1f} s for {counted(sum(self.demand.segments), 'frame')} in "
            f"{counted(sum(lane.sessions for lane in lanes), 'session')} ({fps:.0f} fps at most), "
            f"{prediction.gpu_s:.1f} GPU-seconds, {prediction.cpu_s:.1f} core-seconds",
            "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the placement as JSON values (docs/cli.md)."""
        prediction = self.prediction
        return {
            "machines": self.where,
            "note": self.note,
            "encoder_kinds": [asdict(kind) for kind in self.kinds],
            "lanes": [_lane_json(entry) for entry in prediction.lanes],
            "refusals": [
                {"devices": list(refusal.devices), "reason": refusal.reason} for refusal in self.placement.refusals
            ],
            "predicted": {"wall_s": prediction.wall_s, "gpu_s": prediction.gpu_s, "cpu_s": prediction.cpu_s},
        }


def _lane_json(entry: LaneSchedule) -> dict[str, Any]:
    names = ("node", "device", "route", "sessions", "fps", "cores", "memory_bytes")
    fields = {name: getattr(entry.lane, name) for name in names} | {"route": entry.lane.route.value}
    own = {"segments": list(entry.segments), "frames": entry.frames, "ends_s": entry.ends_s}
    return fields | own | {"reason": entry.lane.reason}


def _counted(inventory: Inventory) -> str:
    devices = [device for node in inventory.nodes for device in node.devices]
    gpus = {
        device.parent or device.device for device in devices if not device.kind.is_processor and not device.hosts_vgpus
    }
    slices = sum(device.kind.is_slice for device in devices)
    cores = sum(device.engines.get(Engine.CPU, 0) for device in devices if device.kind.is_processor)
    parts = [counted(len(inventory.nodes), "node"), *([counted(len(gpus), "GPU")] if gpus else [])]
    parts += [counted(slices, "MIG slice")] if slices else []
    return ", ".join([*parts, counted(cores, "core")])


def _lane_key(entry: LaneSchedule, devices: dict[str, Device]) -> tuple[object, ...]:
    lane = entry.lane
    return (lane.reason, _model(devices[lane.device]), lane.sessions, f"{lane.fps:.1f}", f"{lane.cores:.1f}")


def _who(group: Sequence[LaneSchedule], devices: dict[str, Device]) -> str:
    """Name a device and its node, or a group of equal devices, for example 4 x L40S of l40s-1 ... l40s-4."""
    found = [devices[entry.lane.device] for entry in group]
    model = _model(found[0])
    if len(found) > 1:
        return f"{len(found)} x {model} of {short_names(device.node for device in found)}"
    is_processor = found[0].kind.is_processor
    # UUIDs differ at the beginning, and other names at the end.
    device = found[0].device
    short = "-".join(device.split("-")[:2]) if device.startswith(("GPU-", "MIG-")) else device.rpartition("/")[2]
    return f"{found[0].node} {model}" + ("" if is_processor else f" {short}")


def _lane_text(group: Sequence[LaneSchedule]) -> str:
    lane, each = group[0].lane, "each " if len(group) > 1 else ""
    numbers = [segment for entry in group for segment in entry.segments]
    segments = f"segment{'' if len(numbers) == 1 else 's'} {number_ranges(numbers)}" if numbers else "no segment"
    rate = f"{counted(lane.sessions, 'session')}, {lane.fps:.1f} fps, {lane.cores:.1f} cores"
    return f"{each}{rate}; {segments}"


def _refused(refusal: Refusal, devices: dict[str, Device]) -> str:
    """Name the devices of a refusal by model and number, for example 8 x H200 of h200."""
    named = [devices[device] for device in refusal.devices]
    kinds = Counter(_model(device) for device in named)
    nodes = list(dict.fromkeys(device.node for device in named))
    models = ", ".join(f"{count} x {model}" if count > 1 else model for model, count in kinds.items())
    return f"{models} of {short_names(nodes)}"


def _model(device: Device) -> str:
    return "processor" if device.kind.is_processor else device.name.removeprefix("NVIDIA ")
