"""What is taken and what is left while a placement is made: counts, no decisions.

Every limit is kept here: the point at which an engine's curve is flat, encoder sessions of a device, of its GPU and of
the whole machine, device memory, host memory, cores, and what the policy allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...probes.gpus.hardware import MIB, Hardware
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ..model.inventory import Device, Node
from ..model.policy import Policy
from ..rates.rates import Curve, read_curve
from .recipes import Recipe

__all__ = ["Host", "Ledger", "Site"]

ROUNDING = 1e-9


@dataclass(slots=True)
class _Caps:
    """Encoder sessions that several devices share: those of one GPU's slices, or of one machine."""

    most: int | None
    open: int = 0

    def has_room(self, sessions: int) -> bool:
        return self.most is None or self.open + sessions <= self.most


@dataclass(slots=True, kw_only=True)
class Host:
    """A node while work is placed on it."""

    node: Node
    index: int
    processor: str
    cores: float | None
    memory_bytes: int | None
    has_gpu: bool
    system: _Caps
    cores_used: float = 0.0
    memory_used: int = 0
    device_sessions: int = 0
    """Sessions on its GPUs: their drivers open one after the other."""

    @property
    def load(self) -> float:
        """Return the part of its cores that is taken."""
        return self.cores_used / self.cores if self.cores else 0.0


@dataclass(slots=True, kw_only=True)
class Site:
    """A device while work is placed on it. ``order`` is its place in the inventory."""

    device: Device
    host: Host
    order: int
    memory_bytes: int | None
    own: _Caps
    gpu: _Caps
    sessions: int = 0
    decoder_load: float = 0.0
    encoder_load: float = 0.0
    memory_used: int = 0
    by_route: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """All sites, in the inventory's order, and the policy that bounds them."""

    sites: list[Site]
    policy: Policy
    hardware: Hardware
    totals: dict[Engine, float]

    @classmethod
    def opened(cls, nodes: Sequence[Node], policy: Policy, hardware: Hardware) -> "Ledger":
        """Return a ledger in which nothing is taken yet."""
        sites: list[Site] = []
        for index, node in enumerate(nodes):
            host = _host(node, index, policy)
            gpus: dict[str, _Caps] = {}
            for device in node.devices:
                sites.append(_site(device, host, gpus, len(sites), policy))
        totals = dict.fromkeys((Engine.NVDEC, Engine.NVENC, Engine.CPU), 0.0)
        for site in sites:
            for engine, count in site.device.engines.items():
                if engine in totals:
                    totals[engine] += count * site.device.share
        return cls(sites, policy, hardware, totals)

    @property
    def context_bytes(self) -> int:
        """Return what a process takes of a device before its first session."""
        return self.hardware.memory.context_mib * MIB

    def why_not(self, site: Site, recipe: Recipe) -> str:
        """Return what keeps one more session away, as a sentence without a full stop; "" when it fits."""
        host = site.host
        if host.cores is not None and host.cores_used + recipe.cores > host.cores + ROUNDING:
            return "the cores of its host are taken"
        if host.memory_bytes is not None and host.memory_used + recipe.host_bytes > host.memory_bytes:
            return "the memory of its host is taken"
        return "" if site.device.kind is DeviceKind.CPU else self._why_not_on_gpu(site, recipe)

    def _why_not_on_gpu(self, site: Site, recipe: Recipe) -> str:
        if site.sessions >= self.policy.sessions_per_device:
            return f"the policy allows {self.policy.sessions_per_device} sessions on a device"
        full = _full(site.decoder_load, recipe.decoder_load, recipe.decoder_curve)
        if full:
            return f"its NVDEC gets no faster with more than {full} sessions at full speed"
        full = _full(site.encoder_load, recipe.encoder_load, recipe.encoder_curve)
        if full:
            return f"its NVENC gets no faster with more than {full} sessions at full speed"
        return self._why_no_session(site, recipe) or self._why_no_memory(site, recipe)

    def _why_no_session(self, site: Site, recipe: Recipe) -> str:
        wanted = recipe.encoder_sessions
        if not wanted:
            return ""
        if not site.own.has_room(wanted):
            return f"it takes {site.own.most} encoder sessions at most"
        if not site.gpu.has_room(wanted):
            return f"its GPU takes {site.gpu.most} encoder sessions at most, all slices together"
        if not site.host.system.has_room(wanted):
            return f"its node takes {site.host.system.most} encoder sessions at most, all GPUs together"
        return ""

    def _why_no_memory(self, site: Site, recipe: Recipe) -> str:
        needed = recipe.device_bytes + (0 if site.sessions else self.context_bytes)
        if site.memory_bytes is not None and site.memory_used + needed > site.memory_bytes:
            return "its memory is taken"
        return ""

    def take(self, site: Site, recipe: Recipe, sessions: int = 1) -> None:
        """Book sessions; a negative number gives them back."""
        host = site.host
        host.cores_used += sessions * recipe.cores
        host.memory_used += sessions * recipe.host_bytes
        had_any = site.sessions > 0
        site.sessions += sessions
        if site.device.kind is DeviceKind.CPU:
            return
        host.device_sessions += sessions
        site.decoder_load += sessions * recipe.decoder_load
        site.encoder_load += sessions * recipe.encoder_load
        site.memory_used += sessions * recipe.device_bytes
        site.memory_used += self.context_bytes * ((site.sessions > 0) - had_any)
        for caps in (site.own, site.gpu, host.system):
            caps.open += sessions * recipe.encoder_sessions

    def gain_fps(self, site: Site, recipe: Recipe) -> float:
        """Return by how much one more session makes the device faster, in frames a second."""
        part = 1.0
        if recipe.decoder_load:
            part = min(part, _gain(site.decoder_load, recipe.decoder_load, recipe.decoder_curve))
        if recipe.encoder_load:
            part = min(part, _gain(site.encoder_load, recipe.encoder_load, recipe.encoder_curve))
        return recipe.fps * part

    def speed_fps(self, site: Site, recipe: Recipe) -> float:
        """Return how fast one session runs beside all that is on the device and its host."""
        part = 1.0
        if recipe.decoder_load and site.decoder_load > 1:
            part = min(part, read_curve(recipe.decoder_curve, site.decoder_load) / site.decoder_load)
        if recipe.encoder_load and site.encoder_load > 1:
            part = min(part, read_curve(recipe.encoder_curve, site.encoder_load) / site.encoder_load)
        host = site.host
        if recipe.cores and host.cores is not None and host.cores_used > _real_cores(host, self.policy):
            part = min(part, _real_cores(host, self.policy) / host.cores_used)
        return recipe.fps * part

    def share_of(self, recipe: Recipe) -> float:
        """Return the largest part of the fleet's engines of one kind that a session takes."""
        taken = ((recipe.decoder_load, Engine.NVDEC), (recipe.encoder_load, Engine.NVENC), (recipe.cores, Engine.CPU))
        return max((part / self.totals[engine] for part, engine in taken if part and self.totals[engine]), default=0.0)


def _gain(used: float, stations: float, curve: Curve) -> float:
    if used + stations <= 1:
        return 1.0
    return (read_curve(curve, used + stations) - read_curve(curve, used)) / stations


def _full(used: float, stations: float, curve: Curve) -> int:
    """Return the flat point when one more would go beyond it; 0 while there is room."""
    return curve[-1][0] if stations and used + stations > curve[-1][0] + ROUNDING else 0


def _host(node: Node, index: int, policy: Policy) -> Host:
    processor = next((device for device in node.devices if device.kind is DeviceKind.CPU), None)
    cores = None
    if processor is not None:
        count = processor.engines.get(Engine.CPU, 0) * processor.share
        cores = max(0.0, count - policy.cores_reserved) * policy.sessions_per_core
    memory = None if node.memory_bytes is None else int(node.memory_bytes * (1 - policy.memory_reserve))
    name = processor.name if processor is not None else ""
    system = _Caps(node.system_encoder_sessions_max)
    has_gpu = any(device.kind is not DeviceKind.CPU for device in node.devices)
    return Host(
        node=node, index=index, processor=name, cores=cores, memory_bytes=memory, has_gpu=has_gpu, system=system
    )


def _real_cores(host: Host, policy: Policy) -> float:
    return (host.cores or 0.0) / policy.sessions_per_core


def _site(device: Device, host: Host, gpus: dict[str, _Caps], order: int, policy: Policy) -> Site:
    free = device.free_memory_bytes
    own = _Caps(device.encoder_sessions_max, device.encoder_sessions_others)
    host.system.open += device.encoder_sessions_others
    gpu = _Caps(None)
    if device.parent:
        gpu = gpus.setdefault(device.parent, gpu)
        known = [most for most in (gpu.most, device.encoder_sessions_max) if most is not None]
        gpu.most = min(known, default=None)
        gpu.open += device.encoder_sessions_others
    memory = None if free is None else int(free * (1 - policy.memory_reserve))
    return Site(device=device, host=host, order=order, memory_bytes=memory, own=own, gpu=gpu)
