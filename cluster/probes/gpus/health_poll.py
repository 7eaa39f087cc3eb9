"""Asks NVML how every device of this machine is, at every poll, and watches for Xid errors in between.

Far less than a probe asks, so that it may run beside work: about 30 questions a device. The library stays open between
polls, because only an open event set keeps events (NVML API Reference Manual, "Event Handling Methods"). While it is
open no GPU of the machine can be reset, so polling stops on a node that is drained.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named, read_text
from ..nvml.events import DeviceWatch, watch_events
from ..nvml.facts import CLOCK_REASONS, read_reasons
from ..nvml.gpm import GpmMeasure, begin_gpm
from ..nvml.health import probe_health
from ..nvml.mig import probe_mig, read_memory
from ..nvml.use import probe_use
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import DeviceUse, MigSlice
from ..vgpu.buffers import VgpuNvml
from ..vgpu.guest import guest_absence
from ..vgpu.hosted import scheduler_words
from ..vgpu.instances import probe_vgpu_samples, read_gpu_instance, read_licensable_features, read_vm_id
from ..vgpu.licence import licence_of
from ..vgpu.types import read_profile
from ..vgpu.values import Scheduler, VgpuLoad
from .live_health import DeviceHealth, own_use

if TYPE_CHECKING:
    from ..report.engines import EngineCount


_MODE_VGPU, _MODE_HOST = 2, 3
_US_PER_S = 1_000_000
_NOT_MEASURED = Unavailable(Absence.NOT_FOUND, "it is measured from one poll to the next")
_HARMLESS = frozenset({"idle", "applications clocks", "display clocks"})
"""Reasons for a lower clock that nothing is wrong with."""


class HealthPoll:
    """Polls this machine's devices.

    Args:
        nvml: the ``pynvml`` module, or what answers like it.
        now_utc: the time, by which licences end.
    """

    def __init__(self, nvml: NvmlLike, now_utc: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._nvml = nvml
        self._now_utc = now_utc
        self._devices: list[_Polled] = []
        self._watch: DeviceWatch | None = None
        self._polled_utc: datetime | None = None

    def poll(self, pids: frozenset[int]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Return how every device is; ``pids`` are this machine's processes of ours. Never raises.

        What goes wrong with the library itself is returned, and the next poll opens it again.
        """
        if self._watch is None or self._watch.failure is not None:
            self.close()
            if (problem := self._open()) is not None:
                return problem
        now_utc = self._now_utc()
        since_us = 0 if self._polled_utc is None else int(self._polled_utc.timestamp() * _US_PER_S)
        xids = self._xids()
        found = tuple(each for device in self._devices for each in device.poll(pids, xids, since_us, now_utc))
        self._polled_utc = now_utc
        return found

    def close(self) -> None:
        """Give the library back; the next poll opens it again."""
        if self._watch is None:
            return
        self._watch.close()
        for device in self._devices:
            device.close()
        self._watch, self._devices = None, []
        ask_named(self._nvml, "nvmlShutdown")

    def _open(self) -> Unavailable | None:
        opened = ask_named(self._nvml, "nvmlInit")
        if isinstance(opened, Unavailable):
            return opened
        count = ask_named(self._nvml, "nvmlDeviceGetCount")
        if isinstance(count, Unavailable):
            ask_named(self._nvml, "nvmlShutdown")
            return count
        self._devices = [_Polled(self._nvml, index) for index in range(int(count))]
        handles = {
            str(device.index): device.handle for device in self._devices if not isinstance(device.handle, Unavailable)
        }
        self._watch = watch_events(self._nvml, handles)
        return None

    def _xids(self) -> "_Xids":
        """Return the Xids since the last poll."""
        events = () if self._watch is None else self._watch.poll()
        return tuple(
            (int(event.uuid), event.gpu_instance, event.xid)
            for event in events
            if event.xid is not None and event.uuid  # the device's index: what it was registered as
        )


_Xids = tuple[tuple[int, int | None, int], ...]
"""Index of the device, the GPU instance that was hit (None: all of it), and the Xid."""


class _Polled:
    """One device between polls: its handle, and the first samples of what is measured over time."""

    def __init__(self, nvml: NvmlLike, index: int) -> None:
        self.index = index
        self.handle: Maybe[Any] = ask_named(nvml, "nvmlDeviceGetHandleByIndex", index)
        self._nvml = nvml
        self._mode = self._ask_mode()
        self._gpm: GpmMeasure | None = None
        self._called: dict[str, Maybe[str]] = {}

    def _ask_mode(self) -> Maybe[int]:
        """Ask how this machine came by the device; that lasts for as long as the device is there."""
        if isinstance(self.handle, Unavailable):
            return self.handle
        return DeviceQuestions(self._nvml, self.handle).ask("nvmlDeviceGetVirtualizationMode", read=int)

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.finish({})
            self._gpm = None

    def poll(self, pids: frozenset[int], xids: _Xids, since_us: int, now_utc: datetime) -> tuple[DeviceHealth, ...]:
        if isinstance(self.handle, Unavailable):
            # The driver counts it and did not give it out: perhaps it does now.
            self.handle = ask_named(self._nvml, "nvmlDeviceGetHandleByIndex", self.index)
        if isinstance(self._mode, Unavailable):
            self._mode = self._ask_mode()
        questions = self._questions()
        mig = probe_mig(questions, ())
        slices = () if isinstance(mig, Unavailable) or not mig.enabled else mig.slices
        use = probe_use(questions, _NOT_MEASURED, since_us)
        percents = self._measured(questions, slices)
        mine = [(instance, xid) for index, instance, xid in xids if index == self.index]
        whole = self._whole(questions, use, pids, tuple(xid for _, xid in mine), now_utc)
        if isinstance(mig, Unavailable) or not mig.enabled:
            return (whole,)
        return tuple(
            _of_slice(
                whole,
                each,
                percents.get(each.gpu_instance, _NOT_MEASURED),
                tuple(xid for instance, xid in mine if instance in (None, each.gpu_instance)),
            )
            for each in slices
        )

    def _questions(self) -> DeviceQuestions:
        refused = self.handle
        if isinstance(refused, Unavailable):
            return DeviceQuestions(self._nvml, None, lambda _: refused)
        if self._mode == _MODE_VGPU:
            return DeviceQuestions(self._nvml, refused, guest_absence)
        return DeviceQuestions(self._nvml, refused)

    def _whole(
        self,
        questions: DeviceQuestions,
        use: DeviceUse,
        pids: frozenset[int],
        xids: tuple[int, ...],
        now_utc: datetime,
    ) -> DeviceHealth:
        features = questions.ask("nvmlDeviceGetGridLicensableFeatures", read=read_licensable_features)
        name = self._named(questions, "nvmlDeviceGetName", read_text)
        whole = DeviceHealth(
            index=self.index,
            uuid=self._named(questions, "nvmlDeviceGetUUID", read_text),
            pci_bus_id=self._named(questions, "nvmlDeviceGetPciInfo", lambda pci: read_text(pci.busId)),
            name=known(name, f"GPU {self.index}"),
            is_slice=False,
            memory=questions.ask("nvmlDeviceGetMemoryInfo", read=read_memory),
            throttle=_throttle(questions),
            decoder_percent=use.decoder_percent,
            encoder_percent=use.encoder_percent,
            encoder_sessions=use.encoder_sessions_open,
            ours=own_use(use, pids),
            licence=licence_of(features, now_utc),
            accounting=questions.ask("nvmlDeviceGetAccountingMode", read=bool),
            **self._as_host(questions),
            health=probe_health(questions, xids),
        )
        if isinstance(self.handle, Unavailable) and not whole.health.lost:
            return replace(whole, health=replace(whole.health, lost=self.handle.reason))
        return whole

    def _named(self, questions: DeviceQuestions, function: str, read: Callable[[Any], str]) -> Maybe[str]:
        """Ask what the device is called; one that is lost is called as before, because it does not say any more."""
        answer = questions.ask(function, read=read)
        if isinstance(answer, Unavailable):
            return self._called.get(function, answer)
        self._called[function] = answer
        return answer

    def _as_host(self, questions: DeviceQuestions) -> dict[str, Any]:
        """Ask what only a host of vGPUs knows (guide, 2.4)."""
        if self._mode != _MODE_HOST:
            return {"scheduler": Unavailable(Absence.DOES_NOT_APPLY, "this GPU hosts no vGPUs"), "vgpus": ()}
        hosting = DeviceQuestions(VgpuNvml(self._nvml), questions.handle)
        return {
            "scheduler": hosting.ask(
                "nvmlDeviceGetVgpuSchedulerState",
                read=lambda found: scheduler_words(Scheduler(found.schedulerPolicy)),
            ),
            "vgpus": (running := _vgpus(hosting)),
            "creatable": _creatable(hosting, len(running)),
        }

    def _measured(
        self, questions: DeviceQuestions, slices: tuple[MigSlice, ...]
    ) -> dict[int | None, Maybe[dict[str, float]]]:
        """Return each slice's use of engines since the last poll, and begin to measure up to the next.

        A GPU in MIG mode has no utilisation rates; its slices are sampled one by one (GPM).
        """
        engines: dict[int | None, tuple[EngineCount, ...]] = {piece.gpu_instance: piece.engines for piece in slices}
        measured = {} if self._gpm is None else self._gpm.finish(engines)
        self._gpm = begin_gpm(questions, sorted({piece.gpu_instance for piece in slices})) if slices else None
        return measured


_SHARED = Unavailable(Absence.DOES_NOT_APPLY, "the driver names a GPU's processes, not those of each slice")
_UNDIVIDED = Unavailable(Absence.DOES_NOT_APPLY, "the driver counts a GPU's encoder sessions, not those of each slice")


def _of_slice(
    whole: DeviceHealth, piece: MigSlice, percents: Maybe[dict[str, float]], xids: tuple[int, ...]
) -> DeviceHealth:
    return replace(
        whole,
        uuid=piece.uuid,
        name=f"{whole.name} MIG {piece.profile}",
        is_slice=True,
        health=replace(whole.health, xids=xids),
        ours=_SHARED,
        encoder_sessions=_UNDIVIDED,
        memory=piece.memory,
        decoder_percent=_mean(percents, "nvdec"),
        encoder_percent=_mean(percents, "nvenc"),
    )


def _mean(percents: Maybe[dict[str, float]], engine: str) -> Maybe[int]:
    if isinstance(percents, Unavailable):
        return percents
    mine = [percent for name, percent in percents.items() if name.startswith(engine)]
    if not mine:
        return Unavailable(Absence.NOT_FOUND, f"the slice's driver measures no {engine.upper()}")
    return round(sum(mine) / len(mine))


def _throttle(questions: DeviceQuestions) -> Maybe[str]:
    """Return why clocks are held down; under the newer name first, since drivers give the older one up."""
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        answer: Maybe[str] = questions.ask(function, read=_reasons)
        if not isinstance(answer, Unavailable) or answer.absence is not Absence.FUNCTION_NOT_FOUND:
            return answer
    return answer


def _reasons(mask: int) -> str:
    held = sum(bit for bit, name in CLOCK_REASONS.items() if int(mask) & bit and name not in _HARMLESS)
    return read_reasons(held)


def _creatable(questions: DeviceQuestions, running: int) -> dict[str, int]:
    """Return how many more vGPUs of each type can be made: beside running ones of its size, or on a GPU instance."""
    ids: Maybe[tuple[int, ...]] = questions.ask("nvmlDeviceGetCreatableVgpus", read=lambda ids: tuple(map(int, ids)))
    found = {}
    for type_id in known(ids, ()):
        name: Maybe[str] = questions.ask_of(type_id, "nvmlVgpuTypeGetName", read=read_text)
        most: Maybe[int] = questions.ask_of(questions.handle, "nvmlVgpuTypeGetMaxInstances", type_id, read=int)
        profile: Maybe[int] = questions.ask_of(type_id, "nvmlVgpuTypeGetGpuInstanceProfileId", read=read_profile)
        is_whole = isinstance(profile, Unavailable)
        if isinstance(name, str):
            found[name] = max(1, known(most, 1) - running) if is_whole else 1
    return found


def _most(questions: DeviceQuestions, instance: int) -> Maybe[int]:
    """Return how many vGPUs of a running one's type fit on its GPU."""
    type_id: Maybe[int] = questions.ask_of(instance, "nvmlVgpuInstanceGetType", read=int)
    if isinstance(type_id, Unavailable):
        return type_id
    found: Maybe[int] = questions.ask_of(questions.handle, "nvmlVgpuTypeGetMaxInstances", type_id, read=int)
    return found


def _vgpus(questions: DeviceQuestions) -> tuple[VgpuLoad, ...]:
    samples = known(probe_vgpu_samples(questions).use, {})
    active: Maybe[tuple[int, ...]] = questions.ask("nvmlDeviceGetActiveVgpus", read=lambda ids: tuple(map(int, ids)))
    none = Unavailable(Absence.NOT_FOUND, "the driver has not sampled this vGPU yet")
    return tuple(
        VgpuLoad(
            instance=instance,
            decoder_percent=samples[instance].decoder_percent if instance in samples else none,
            encoder_percent=samples[instance].encoder_percent if instance in samples else none,
            licensed=questions.ask_of(instance, "nvmlVgpuInstanceGetLicenseStatus", read=bool),
            accounting=questions.ask_of(instance, "nvmlVgpuInstanceGetAccountingMode", read=bool),
            uuid=questions.ask_of(instance, "nvmlVgpuInstanceGetUUID", read=read_text),
            machine=questions.ask_of(instance, "nvmlVgpuInstanceGetVmID", read=lambda found: read_vm_id(found).value),
            most=_most(questions, instance),
            gpu_instance=read_gpu_instance(questions, instance),
        )
        for instance in known(active, ())
    )
