"""Recipes: the resources of one session of a demand on one device, for each open route. Equal devices share them."""

from dataclasses import dataclass, replace
from math import inf

from ...probes.gpus.hardware import MIB, HostMemory
from ...probes.report.device_kinds import Route
from ...probes.report.engines import CodecCase, Engine
from ..measurements import beside, core_fps_beside
from ..model.demand import Demand, EncoderKind
from ..model.inventory import Device
from ..model.policy import Policy
from ..rates import (
    Curve,
    Rates,
    Stage,
    curve_of,
    decode_stage,
    encode_stage,
    frame_bytes,
    measured_core_fps,
    read_curve,
    session_bytes,
    software_fps,
)

Kinds = tuple[EncoderKind, ...]
_ROUTES = {(route.decoder, route.encoder): route for route in Route}


@dataclass(frozen=True, slots=True)
class SessionLoad:
    """The load that one session puts on a kind of engine."""

    engine: str  # NVDEC or NVENC
    load: float  # a multiple of the load of one full-speed session, which keeps one engine busy
    # The device's throughput at each load, up to the highest throughput; in multiples of one full-speed session.
    curve: Curve
    load_most: int  # the load beyond which the device's throughput does not grow

    def gain(self, before: float) -> float:
        """Return the throughput that one more session adds at the load ``before``, as a fraction of its own speed."""
        return (read_curve(self.curve, before + self.load) - read_curve(self.curve, before)) / self.load

    def slowdown(self, load: float) -> float:
        """Return a session's fraction of its full speed at a load that includes the session."""
        return read_curve(self.curve, load) / load if load > 1 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One session of a demand on a device, with the resources that it takes."""

    route: Route
    kinds: Kinds
    fps: float  # the session's speed on an otherwise idle host
    engines: tuple[SessionLoad, ...] = ()
    cores: float = 0.0  # how many hardware threads of the host the session uses
    encoder_sessions: int = 0
    device_bytes: int = 0
    host_bytes: int = 0


Recipes = tuple[Recipe, ...] | str
"""The recipes of open routes, fastest first; or why no route is open."""


def nvenc_kind(device: Device) -> EncoderKind:
    """Return the encoder kind of a device's NVENC."""
    return EncoderKind(Engine.NVENC.value, device.architecture, device.driver_branch)


@dataclass(frozen=True, slots=True)
class SessionStages:
    """The stages of one session of a demand with these encoder kinds, on any device."""

    demand: Demand
    kinds: Kinds
    decode: Stage
    software_decode: Stage
    encodes: tuple[Stage, ...]
    host_bytes: int  # host memory that the session takes if cores take part

    @classmethod
    def of(cls, demand: Demand, kinds: Kinds, memory: HostMemory) -> "SessionStages":
        """Return the stages of a demand."""
        decode, software_decode = decode_stage(demand), decode_stage(demand, Engine.CPU)
        encodes = tuple(encode_stage(*track) for track in zip(demand.renditions, kinds, strict=True))
        in_software = [stage for stage in encodes if stage.engine is Engine.CPU]
        longest, filters = demand.longest_frames, demand.has_filters
        pictures_bytes = session_bytes(memory, software_decode, in_software, longest, filters=filters)
        return cls(demand, kinds, decode, software_decode, encodes, pictures_bytes + demand.filter_bytes)


@dataclass(frozen=True, slots=True)
class RecipeRequest:
    """A session's stages, and the device and host on which they would run."""

    stages: SessionStages
    device: Device
    rates: Rates
    policy: Policy
    processor: str = ""
    speed: float = 1.0  # the speed of the host's cores, relative to the reference core
    host_cores: float = 1.0

    def recipes(self) -> Recipes:
        """Return the open routes, fastest first; if there are none, the reason as a sentence without a full stop."""
        if self.device.kind.is_processor:
            return self._on_processor()
        if refusal := self._encoding_refusal():
            return refusal
        decoding = self._decoding_refusal()
        found = [] if decoding else [self.recipe(Engine.NVDEC)]
        if any(kind.is_nvenc for kind in self.stages.kinds) and Engine.CPU in self.policy.engines:
            found.append(self.recipe(Engine.CPU))
        usable = [recipe for recipe in found if recipe.fps > 0]
        if not usable:
            return decoding or "the speed of its engines is unknown"
        is_hybrid = usable[0].route.encoder is Engine.CPU and not self.stages.demand.needs_gpu
        if is_hybrid and (refusal := self._hybrid_refusal(usable[0])):
            return refusal
        return tuple(sorted(usable, key=lambda recipe: -recipe.fps))

    def _hybrid_refusal(self, hybrid: Recipe) -> str:
        """Return why a GPU is not worth using if it only decodes; "" if it is worth using.

        ``hybrid`` decodes on the GPU and encodes on the cores. Documented rates decide until the cores have been
        measured beside this GPU; with measured rates of the cores alone, the decision would keep changing.
        """
        cores = beside(self.processor, self.device.name)
        is_measured = all(measured_core_fps(self.rates, cores, stage) > 0 for stage in self.stages.encodes)
        fps, software_s = hybrid.fps, self.software_s()
        if self.rates.measured and not is_measured:
            documented = replace(self, rates=replace(self.rates, measured={}))
            fps, software_s = documented.recipe(Engine.NVDEC).fps, documented.software_s()
        gain = fps * software_s - 1
        if gain <= 0 or (gain < self.policy.hybrid_gain and not is_measured):
            return f"with its NVDEC a session would be {max(gain, 0):.0%} faster, which is not worth a GPU"
        # A session has a core to itself, so this is the time saved on that core.
        saved_s = self.stages.demand.about_frames * (software_s - 1 / fps) / max(self.host_cores, 1)
        if 0 < saved_s <= self.policy.gpu_start_s:
            start_s = self.policy.gpu_start_s
            return f"its NVDEC would save the job {saved_s:.1f} s, and its worker takes {start_s:g} s to start"
        return ""

    def _on_processor(self) -> Recipes:
        if Engine.CPU not in self.policy.engines:
            return "the policy keeps work off processors"
        if self.stages.demand.needs_gpu:
            return "the job asks for a GPU"
        if any(kind.is_nvenc for kind in self.stages.kinds):
            return "the track is encoded by NVENC, which a processor cannot continue"
        for rendition, kind in zip(self.stages.demand.renditions, self.stages.kinds, strict=True):
            case, name = rendition.case, kind.implementation
            tried = [trial for trial in self.device.trials if trial.case == case and trial.implementation == name]
            # A missing trial is no reason to refuse an engine.
            if tried and not any(trial.works for trial in tried):
                return tried[0].reason or f"{name} failed its trial with {case.name} there"
        recipe = self.recipe(Engine.CPU)
        return (recipe,) if recipe.fps > 0 else "the speed of its software encoder is unknown"

    def _encoding_refusal(self) -> str:
        if any(not kind.is_nvenc for kind in self.stages.kinds) and Engine.CPU not in self.policy.engines:
            return "the policy keeps work off processors, and the track is encoded by software"
        for rendition, kind in zip(self.stages.demand.renditions, self.stages.kinds, strict=True):
            if not kind.is_nvenc:
                continue
            if refusal := self._engine_refusal(Engine.NVENC, rendition.case, rendition.width, rendition.height):
                return refusal
            if kind != nvenc_kind(self.device):
                return f"the track is encoded by {_spoken(kind)}, and this is {_spoken(nvenc_kind(self.device))}"
        return ""

    def _decoding_refusal(self) -> str:
        if self.stages.demand.software_decode:
            return self.stages.demand.software_decode
        if (
            self.stages.demand.has_filters
            and any(kind.is_nvenc for kind in self.stages.kinds)
            and not self.device.converts
        ):
            return f"{self.device.name} cannot scale and convert pictures: {self.device.no_kernels}"
        return self._engine_refusal(
            Engine.NVDEC, self.stages.demand.decode, self.stages.demand.width, self.stages.demand.height
        )

    def _engine_refusal(self, engine: Engine, case: CodecCase, width: int, height: int) -> str:
        if engine not in self.policy.engines:
            return f"the policy does not use {engine.name}"
        if not self.device.trials:
            return f"{self.device.name} was not tried" + (f": {self.device.untried}" if self.device.untried else "")
        trials = [trial for trial in self.device.trials if trial.engine is engine and trial.case == case]
        if self.device.engines.get(engine, 0) <= 0:
            return next((trial.reason for trial in trials if trial.reason), f"{self.device.name} has no {engine.name}")
        working = [trial for trial in trials if trial.works]
        if not working:
            media = f"{case.codec.value} {case.bit_depth}-bit {case.chroma}"
            return f"{self.device.name} cannot {case.direction.value} {media} with its {engine.name}"
        if any(width <= (trial.max_width or width) and height <= (trial.max_height or height) for trial in working):
            return ""
        most = "{}x{}".format(*max((trial.max_width or 0, trial.max_height or 0) for trial in working))
        return f"{width}x{height} exceeds the {most} that its {engine.name} supports for {case.codec.value}"

    def recipe(self, decoder: Engine) -> Recipe:
        """Return the recipe of a session in which ``decoder`` decodes and the demand's encoder kinds encode."""
        decodes = [self.stages.decode] if decoder is Engine.NVDEC else []
        encodes = [stage for stage in self.stages.encodes if stage.engine is Engine.NVENC]
        in_software = [stage for stage in self.stages.encodes if stage.engine is Engine.CPU]
        core_s = sum(self._core_s(stage, beside_gpu=bool(decodes)) for stage in in_software)
        if not decodes:
            core_s += self._core_s(self.stages.software_decode)
        route = _ROUTES[decoder, Engine.NVENC if encodes else Engine.CPU]
        decoding, encoding = (
            [curve_of(self.rates, self.device, stage) for stage in stages] for stages in (decodes, encodes)
        )
        if not all(decoding + encoding):
            return Recipe(route=route, kinds=self.stages.kinds, fps=0.0)
        encoder_s = sum(1 / curve[0][1] for curve in encoding)
        nvencs = max(1.0, self.device.engine_count(Engine.NVENC))
        bounds = [curve[0][1] for curve in encoding + decoding]
        bounds += [nvencs / encoder_s] if encoder_s else []
        bounds += [1 / core_s] if core_s else []
        fps = min(bounds, default=0.0)
        uses = [_session_load(Engine.NVDEC, fps / curve[0][1], curve) for curve in decoding]
        uses += [_session_load(Engine.NVENC, fps * encoder_s, curve) for curve in encoding[:1]]
        return Recipe(
            route=route,
            kinds=self.stages.kinds,
            fps=fps,
            engines=tuple(uses),
            cores=max(fps * core_s, self.policy.feeding_cores if uses else 0.0),
            encoder_sessions=len(encodes),
            device_bytes=self._device_bytes(decodes + encodes),
            host_bytes=self.stages.host_bytes if core_s else self.rates.hardware.host.session_mib * MIB,
        )

    def software_s(self) -> float:
        """Return how many seconds one core takes to decode and encode a frame."""
        return sum(self._core_s(stage) for stage in (self.stages.software_decode, *self.stages.encodes))

    def _core_s(self, stage: Stage, *, beside_gpu: bool = False) -> float:
        if beside_gpu:
            fps = core_fps_beside(self.rates, self.processor, self.speed, self.device.name, stage)
        else:
            fps = software_fps(self.rates, self.processor, self.speed, stage)
        return 1 / fps if fps > 0 else inf

    def _device_bytes(self, stages: list[Stage]) -> int:
        memory = self.rates.hardware.memory
        return sum(max(memory.session_mib * MIB, memory.session_1080p_frames * frame_bytes(stage)) for stage in stages)


def _session_load(engine: Engine, load: float, curve: Curve) -> SessionLoad:
    relative = tuple((sessions, fps / curve[0][1]) for sessions, fps in curve)
    return SessionLoad(engine.name, load, relative, curve[-1][0])


def _spoken(kind: EncoderKind) -> str:
    if not kind.is_nvenc:
        return kind.implementation
    branch = f" with driver branch {kind.driver_branch}" if kind.driver_branch else ""
    return f"{kind.architecture or 'some'} NVENC{branch}"
