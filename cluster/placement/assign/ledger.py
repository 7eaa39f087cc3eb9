"""The used and free capacity of devices and hosts during a placement, and the limits on that capacity."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...probes.gpus.hardware import MIB, Hardware
from ...probes.report.engines import MEDIA_ENGINES, Engine
from ...text_lines import gigabytes
from ..model.inventory import Device, Node
from ..model.policy import Policy
from .recipes import Recipe

ROUNDING = 1e-9
_CPU = Engine.CPU.name
_IDLE = {engine.name: 0.0 for engine in MEDIA_ENGINES}


@dataclass(slots=True)
class _Caps:
    """The cap on encoder sessions of a device, of one GPU's slices together, or of a machine.

    ``refusal`` says that the cap is reached.
    """

    refusal: str
    most: int | None
    open: int = 0


@dataclass(slots=True, kw_only=True)
class Host:
    """The capacity of a node, and its use so far in a placement."""

    node: Node
    index: int
    processor: str  # the name of the node's processor
    cores: float | None  # cores that sessions may use
    memory_bytes: int | None  # memory that sessions may use
    has_gpu: bool
    system: _Caps
    cores_used: float = 0.0
    memory_used: int = 0
    device_sessions: int = 0  # sessions on the node's GPUs, whose drivers open sessions one after the other
    changes: int = 0  # how many times resources were reserved or released on the node

    def room_for(self, session_bytes: int) -> int | None:
        """Return how many more sessions of this size fit into the memory; None if any number fits.

        A single session may also use the memory that is normally kept free.
        """
        if self.memory_bytes is None or not session_bytes:
            return None
        room = max(0, self.memory_bytes - self.memory_used) // session_bytes
        return room or int(not self.memory_used and not self.is_too_small_for(session_bytes))

    def is_too_small_for(self, session_bytes: int) -> bool:
        """Return whether a session of this size needs more memory than the node has."""
        return self.node.memory_bytes is not None and session_bytes > self.node.memory_bytes


@dataclass(slots=True, kw_only=True)
class Site:
    """The capacity of a device, and its use so far in a placement."""

    device: Device
    host: Host
    order: int  # the device's index in the inventory
    is_processor: bool
    memory_bytes: int | None  # memory that sessions may use
    caps: tuple[_Caps, _Caps, _Caps]  # the caps of the device, of its GPU and of its machine
    sessions: int = 0
    # The total load of the device's sessions, by engine name.
    loads: dict[str, float] = field(default_factory=_IDLE.copy)
    memory_used: int = 0


class Ledger:
    """All devices in the inventory's order, with the policy's limits on these devices."""

    def __init__(self, nodes: Sequence[Node], policy: Policy, hardware: Hardware) -> None:
        self.policy = policy
        self.hardware = hardware
        self.context_bytes = hardware.memory.context_mib * MIB  # memory that each process takes on a device
        self.given_back: list[int] = []  # indices of hosts on which sessions were released, in order of release
        self.sites: list[Site] = []
        totals = dict.fromkeys((*MEDIA_ENGINES, Engine.CPU), 0.0)
        for index, node in enumerate(nodes):
            host = _host(node, index, policy, hardware.host.rest_mib * MIB)
            gpus: dict[str, _Caps] = {}
            for device in node.devices:
                self.sites.append(_site(device, host, gpus, len(self.sites), policy))
                for engine in totals:
                    totals[engine] += device.engine_count(engine)
        self._totals = {engine.name: total for engine, total in totals.items()}

    def why_not(self, site: Site, recipe: Recipe) -> str:
        """Return why no more session fits, as a sentence without a full stop; "" if a session fits."""
        host = site.host
        if host.cores is not None and host.cores_used + recipe.cores > host.cores + ROUNDING:
            return "the cores of its host are taken"
        most = host.memory_bytes
        if most is not None and host.memory_used + recipe.host_bytes > most and host.room_for(recipe.host_bytes) == 0:
            if not host.is_too_small_for(recipe.host_bytes):
                return "the memory of its host is taken"
            has = gigabytes(host.node.memory_bytes or 0)
            return f"a segment needs {gigabytes(recipe.host_bytes)} of memory, and its host has {has}"
        return "" if site.is_processor else self._why_not_on_gpu(site, recipe)

    def _why_not_on_gpu(self, site: Site, recipe: Recipe) -> str:
        if site.sessions >= self.policy.sessions_per_device:
            return f"the policy allows {self.policy.sessions_per_device} sessions on a device"
        for use in recipe.engines:
            if site.loads[use.engine] + use.load > use.load_most + ROUNDING:
                return f"its {use.engine} gets no faster with more than {use.load_most} sessions at full speed"
        if recipe.encoder_sessions:
            for caps in site.caps:
                if caps.most is not None and caps.most - caps.open < recipe.encoder_sessions:
                    return caps.refusal.format(caps.most)
        needed = recipe.device_bytes + (0 if site.sessions else self.context_bytes)
        if site.memory_bytes is not None and site.memory_used + needed > site.memory_bytes:
            return "its memory is taken"
        return ""

    def room_for(self, site: Site, recipe: Recipe, cores_used: float) -> int:
        """Return how many more sessions would fit on a device if the host used ``cores_used`` more cores."""
        host, rooms = site.host, list[int]()
        if host.cores is not None and recipe.cores:
            rooms.append(int((host.cores - host.cores_used - cores_used) / recipe.cores + ROUNDING))
        if (room := host.room_for(recipe.host_bytes)) is not None:
            rooms.append(room)
        rooms += [int((use.load_most - site.loads[use.engine]) / use.load + ROUNDING) for use in recipe.engines]
        if recipe.encoder_sessions:
            capped = [caps.most - caps.open for caps in site.caps if caps.most is not None]
            rooms += [free // recipe.encoder_sessions for free in capped]
        if recipe.device_bytes:
            rooms.append(self.policy.sessions_per_device - site.sessions)
        if recipe.device_bytes and site.memory_bytes is not None:
            context = 0 if site.sessions else self.context_bytes
            rooms.append((site.memory_bytes - site.memory_used - context) // recipe.device_bytes)
        return max(0, min(rooms))

    def take(self, site: Site, recipe: Recipe, sessions: int = 1) -> None:
        """Reserve resources for sessions; a negative number releases them."""
        host = site.host
        host.changes += 1
        host.cores_used += sessions * recipe.cores
        host.memory_used += sessions * recipe.host_bytes
        if sessions < 0:
            self.given_back.append(host.index)
        if site.is_processor:
            return
        had_any = site.sessions > 0
        site.sessions += sessions
        host.device_sessions += sessions
        for use in recipe.engines:
            site.loads[use.engine] += sessions * use.load
        site.memory_used += sessions * recipe.device_bytes
        site.memory_used += self.context_bytes * ((site.sessions > 0) - had_any)
        for caps in site.caps:
            caps.open += sessions * recipe.encoder_sessions

    @contextmanager
    def without(self, site: Site, recipe: Recipe) -> Iterator[None]:
        """Release a session's resources for the duration of the context."""
        changes = site.host.changes
        self.take(site, recipe, -1)
        try:
            yield
        finally:
            self.take(site, recipe)
            self.given_back.pop()
            site.host.changes = changes

    def gain_fps(self, site: Site, recipe: Recipe) -> float:
        """Return how many frames a second a device gains from one more session."""
        part = 1.0
        for use in recipe.engines:
            before = site.loads[use.engine]
            if before + use.load > 1:
                part = min(part, use.gain(before))
        return recipe.fps * part

    def speed_fps(self, site: Site, recipe: Recipe) -> float:
        """Return how fast one session runs while all other sessions on the device and its host run."""
        parts = [use.slowdown(site.loads[use.engine]) for use in recipe.engines]
        host = site.host
        if recipe.cores and host.cores is not None and host.cores_used:
            parts.append(host.cores / self.policy.sessions_per_core / host.cores_used)
        return recipe.fps * min([1.0, *parts])

    def share_of(self, recipe: Recipe) -> float:
        """Return the largest fraction of the fleet's engines of one kind that a session takes."""
        cores = self._totals[_CPU]
        share = recipe.cores / cores if cores else 0.0
        for use in recipe.engines:
            if total := self._totals[use.engine]:
                share = max(share, use.load / total)
        return share


def _host(node: Node, index: int, policy: Policy, rest_bytes: int) -> Host:
    processor = node.processor
    cores = None
    if processor is not None:
        cores = max(0.0, processor.engine_count(Engine.CPU) - policy.cores_reserved) * policy.sessions_per_core
    memory = None
    if node.memory_bytes is not None:
        memory = max(0, int(node.memory_bytes * (1 - policy.memory_reserve)) - rest_bytes)
    return Host(
        node=node,
        index=index,
        processor="" if processor is None else processor.name,
        cores=cores,
        memory_bytes=memory,
        has_gpu=bool(node.gpus),
        system=_Caps("its node takes {} encoder sessions at most, all GPUs together", node.system_encoder_sessions_max),
    )


def _site(device: Device, host: Host, gpus: dict[str, _Caps], order: int, policy: Policy) -> Site:
    free = device.free_memory_bytes
    own = _Caps("it takes {} encoder sessions at most", device.encoder_sessions_max, device.encoder_sessions_others)
    host.system.open += device.encoder_sessions_others
    gpu = _Caps("its GPU takes {} encoder sessions at most, all slices together", None)
    if device.parent:
        gpu = gpus.setdefault(device.parent, gpu)
        known = [most for most in (gpu.most, device.encoder_sessions_max) if most is not None]
        gpu.most = min(known, default=None)
        gpu.open += device.encoder_sessions_others
    return Site(
        device=device,
        host=host,
        order=order,
        is_processor=device.kind.is_processor,
        memory_bytes=None if free is None else int(free * (1 - policy.memory_reserve)),
        caps=(own, gpu, host.system),
    )
