"""What one session of a demand takes on one device, by every route that is open there: pure arithmetic.

A segment is decoded, processed and encoded on one host. A *recipe* says which engines do it there, how fast one
session is with the host to itself, and what it takes: places on engines, cores, encoder sessions, memory. Devices of a
kind share their recipes.
"""

from dataclasses import dataclass
from math import inf

from ...probes.gpus.hardware import MIB, Hardware
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import CodecCase, Engine, Trial
from ..model.demand import Demand, EncoderKind, Rendition
from ..model.inventory import Device
from ..model.placement import Route
from ..model.policy import Policy
from ..rates.device_rates import core_fps_beside
from ..rates.rates import DEFAULT_PRESET, Curve, Rates, Stage, curve_of, software_fps

__all__ = ["Recipe", "Refused", "nvenc_kind", "preset_of", "recipes_of"]

EIGHT_BITS = 8
_SAMPLES = {"4:0:0": 1.0, "4:2:0": 1.5, "4:2:2": 2.0, "4:4:4": 3.0}

Kinds = tuple[EncoderKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One session of a demand on a device.

    ``fps`` is its speed with the host to itself. ``decoder_load`` and ``encoder_load`` are what it takes of NVDEC
    and NVENC at that speed, in sessions that would keep one engine busy; each curve says how a device's throughput
    grows with them, as a multiple of one, and ends where it is flat. ``cores`` are reference-free: whole threads.
    """

    route: Route
    kinds: Kinds
    fps: float
    decoder_load: float = 0.0
    encoder_load: float = 0.0
    decoder_curve: Curve = ()
    encoder_curve: Curve = ()
    cores: float = 0.0
    encoder_sessions: int = 0
    device_bytes: int = 0
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """Why no route is open: one sentence without a full stop."""

    reason: str


def nvenc_kind(device: Device) -> EncoderKind:
    """Return the kind of what a device's NVENC writes."""
    return EncoderKind(Engine.NVENC.value, device.architecture, device.driver_branch)


def preset_of(rendition: Rendition) -> int:
    """Return a rendition's preset, 1 to 7; the default where it names none of these."""
    return int(rendition.preset) if rendition.preset in tuple("1234567") else DEFAULT_PRESET


def recipes_of(
    demand: Demand,
    kinds: Kinds,
    device: Device,
    rates: Rates,
    policy: Policy,
    *,
    processor: str = "",
    speed: float = 1.0,
    host_cores: float = 1.0,
) -> tuple[Recipe, ...] | Refused:
    """Return the routes that are open to a demand, with its encoder kinds settled, on a device; the fastest first.

    ``processor`` names the host's, ``speed`` is that of its cores against the reference core, and ``host_cores`` is how
    many it has.
    """
    return _Asked(demand, kinds, device, processor, speed, host_cores, rates, policy).answer()


@dataclass(frozen=True, slots=True)
class _Asked:
    demand: Demand
    kinds: Kinds
    device: Device
    processor: str
    speed: float
    host_cores: float
    rates: Rates
    policy: Policy

    def answer(self) -> tuple[Recipe, ...] | Refused:
        if self.device.kind is DeviceKind.CPU:
            return self._on_processor()
        refusal = self._encoding_refusal()
        if refusal:
            return Refused(refusal)
        decoding = self._decoding_refusal()
        found = [] if decoding else [self._recipe(Engine.NVDEC)]
        if any(kind.is_nvenc for kind in self.kinds) and Engine.CPU in self.policy.engines:
            found.append(self._recipe(Engine.CPU))
        usable = [recipe for recipe in found if recipe.fps > 0]
        if not usable:
            return Refused(decoding or "nothing is known of how fast its engines are")
        if usable[0].route is Route.HYBRID and not self.demand.needs_gpu:
            refusal = self._hybrid_refusal(usable[0].fps, self._recipe(Engine.CPU).fps)
            if refusal:
                return Refused(refusal)
        return tuple(sorted(usable, key=lambda recipe: -recipe.fps))

    def _hybrid_refusal(self, fps: float, software_fps_: float) -> str:
        """Return why decoding alone is not worth a GPU; "" where it is."""
        gain = fps / software_fps_ - 1
        if gain <= 0 or gain < self.policy.hybrid_gain:
            return f"with its NVDEC a session would be {max(gain, 0):.0%} faster, which is not worth a GPU"
        # A session has a core to itself, so this is what a frame takes of one less.
        saved_s = self.demand.about_frames * (1 / software_fps_ - 1 / fps) / max(self.host_cores, 1)
        if 0 < saved_s <= self.policy.gpu_start_s:
            start_s = self.policy.gpu_start_s
            return f"its NVDEC would save the job {saved_s:.1f} s, and its worker takes {start_s:g} s to start"
        return ""

    def _on_processor(self) -> tuple[Recipe, ...] | Refused:
        if Engine.CPU not in self.policy.engines:
            return Refused("the policy keeps work off processors")
        if self.demand.needs_gpu:
            return Refused("the job asks for a GPU")
        if any(kind.is_nvenc for kind in self.kinds):
            return Refused("the track is encoded by NVENC, which a processor cannot continue")
        for case, implementation in self._software():
            trial = _failed(self.device.trials, case, implementation)
            if trial is not None:
                return Refused(trial.reason or f"{implementation} failed its trial with {case.name} there")
        recipe = self._recipe(Engine.CPU)
        return (recipe,) if recipe.fps > 0 else Refused("nothing is known of how fast its software encoder is")

    def _software(self) -> list[tuple[CodecCase, str]]:
        pairs = zip(self.demand.renditions, self.kinds, strict=True)
        return [(rendition.case, kind.implementation) for rendition, kind in pairs if not kind.is_nvenc]

    def _encoding_refusal(self) -> str:
        if any(not kind.is_nvenc for kind in self.kinds) and Engine.CPU not in self.policy.engines:
            return "the policy keeps work off processors, and the track is encoded by software"
        for rendition, kind in zip(self.demand.renditions, self.kinds, strict=True):
            if not kind.is_nvenc:
                continue
            refusal = self._engine_refusal(Engine.NVENC, rendition.case, rendition.width, rendition.height)
            if refusal:
                return refusal
            if kind != nvenc_kind(self.device):
                return f"the track is encoded by {_spoken(kind)}, and this is {_spoken(nvenc_kind(self.device))}"
        return ""

    def _decoding_refusal(self) -> str:
        if self.demand.software_decode:
            return self.demand.software_decode
        if self.demand.has_filters and any(kind.is_nvenc for kind in self.kinds) and not self.device.converts:
            return f"{self.device.name} cannot scale and convert pictures without NVRTC"
        return self._engine_refusal(Engine.NVDEC, self.demand.decode, self.demand.width, self.demand.height)

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
            return f"{self.device.name} cannot {case.direction.value} {_format(case)} with its {engine.name}"
        if not any(_takes(trial, width, height) for trial in working):
            most = max((trial.max_width or 0, trial.max_height or 0) for trial in working)
            return (
                f"{width}x{height} is larger than its {engine.name} takes of {case.codec.value} ({most[0]}x{most[1]})"
            )
        return ""

    def _recipe(self, decoder: Engine) -> Recipe:
        """Work out a session that is decoded by ``decoder`` and encoded as the kinds say."""
        hardware = self.rates.hardware
        decode = Stage(self.demand.decode, self.demand.width, self.demand.height, decoder, Engine.NVDEC.value)
        on_device, core_s = [], 0.0
        for rendition, kind in zip(self.demand.renditions, self.kinds, strict=True):
            engine = Engine.NVENC if kind.is_nvenc else Engine.CPU
            name, preset = kind.implementation, preset_of(rendition)
            stage = Stage(rendition.case, rendition.width, rendition.height, engine, name, preset)
            if engine is Engine.NVENC:
                on_device.append(stage)
            else:
                core_s += self._core_s(stage, beside_gpu=decoder is Engine.NVDEC)
        decoder_curve = curve_of(self.rates, self.device, decode) if decoder is Engine.NVDEC else ()
        if decoder is Engine.CPU:
            core_s += self._core_s(decode)
        encoder_curves = [curve_of(self.rates, self.device, stage) for stage in on_device]
        if not all(encoder_curves) or (decoder is Engine.NVDEC and not decoder_curve):
            return Recipe(route=_route(decoder, on_device), kinds=self.kinds, fps=0.0)
        encoder_s = sum(1 / curve[0][1] for curve in encoder_curves)
        engines = max(1.0, self.device.engines.get(Engine.NVENC, 0) * self.device.share)
        bounds = [curve[0][1] for curve in encoder_curves]
        bounds += [engines / encoder_s] if encoder_s else []
        bounds += [decoder_curve[0][1]] if decoder_curve else []
        bounds += [1 / core_s] if core_s else []
        fps = min(bounds, default=0.0)
        uses_device = decoder is Engine.NVDEC or bool(on_device)
        return Recipe(
            route=_route(decoder, on_device),
            kinds=self.kinds,
            fps=fps,
            decoder_load=fps / decoder_curve[0][1] if decoder_curve else 0.0,
            encoder_load=fps * encoder_s,
            decoder_curve=_relative(decoder_curve),
            encoder_curve=_relative(encoder_curves[0]) if encoder_curves else (),
            cores=max(fps * core_s, self.policy.feeding_cores if uses_device else 0.0),
            encoder_sessions=len(on_device),
            device_bytes=self._device_bytes(hardware, decoder, on_device),
            host_bytes=self._host_bytes(hardware, in_software=core_s > 0),
        )

    def _core_s(self, stage: Stage, *, beside_gpu: bool = False) -> float:
        if beside_gpu:
            fps = core_fps_beside(self.rates, self.processor, self.speed, self.device.name, stage)
        else:
            fps = software_fps(self.rates, self.processor, self.speed, stage)
        return 1 / fps if fps > 0 else inf

    def _device_bytes(self, hardware: Hardware, decoder: Engine, encodes: list[Stage]) -> int:
        frames = (
            [_frame_bytes(self.demand.decode, self.demand.width, self.demand.height)] if decoder is Engine.NVDEC else []
        )
        frames += [_frame_bytes(stage.case, stage.width, stage.height) for stage in encodes]
        memory = hardware.memory
        least, each = memory.session_mib * MIB, memory.session_1080p_frames
        return sum(max(least, each * frame) for frame in frames)

    def _host_bytes(self, hardware: Hardware, *, in_software: bool) -> int:
        software = hardware.software
        if not in_software:
            return software.host_session_mib * MIB
        frame = _frame_bytes(self.demand.decode, self.demand.width, self.demand.height)
        return software.host_session_mib * MIB + software.host_frames * frame


def _route(decoder: Engine, encodes: list[Stage]) -> Route:
    if decoder is Engine.NVDEC:
        return Route.GPU if encodes else Route.HYBRID
    return Route.UPLOAD if encodes else Route.CPU


def _relative(curve: Curve) -> Curve:
    return tuple((sessions, fps / curve[0][1]) for sessions, fps in curve)


def _frame_bytes(case: CodecCase, width: int, height: int) -> int:
    samples = width * height * _SAMPLES.get(case.chroma, 3.0)
    return int(samples * (2 if case.bit_depth > EIGHT_BITS else 1))


def _takes(trial: Trial, width: int, height: int) -> bool:
    return (trial.max_width is None or width <= trial.max_width) and (
        trial.max_height is None or height <= trial.max_height
    )


def _failed(trials: tuple[Trial, ...], case: CodecCase, implementation: str) -> Trial | None:
    """Return the trial that a software codec failed; one that was never made says nothing against it."""
    of_it = [trial for trial in trials if trial.case == case and trial.implementation == implementation]
    return of_it[0] if of_it and not any(trial.works for trial in of_it) else None


def _format(case: CodecCase) -> str:
    return f"{case.codec.value} {case.bit_depth}-bit {case.chroma}"


def _spoken(kind: EncoderKind) -> str:
    if not kind.is_nvenc:
        return kind.implementation
    branch = f" with driver branch {kind.driver_branch}" if kind.driver_branch else ""
    return f"{kind.architecture or 'some'} NVENC{branch}"
