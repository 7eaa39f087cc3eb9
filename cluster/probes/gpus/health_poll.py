"""Polls the health of this machine's devices, and watches for Xid errors between polls.

The driver keeps events only while NVML is open. While NVML is open, a GPU cannot be reset, so polling stops on a
draining node.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named, read_text
from ..nvml.events import DeviceWatch, XidEvent, watch_events
from ..nvml.facts import CLOCK_REASONS, ask_virtualization, read_reasons
from ..nvml.gpm import GpmMeasure, Percents, begin_gpm
from ..nvml.mig import probe_mig, read_memory
from ..nvml.use import probe_health, probe_use
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import MigSlice
from ..report.engines import Engine
from ..vgpu.buffers import with_safe_vgpu_calls
from ..vgpu.host import HOST, ask_scheduler, creatable_vgpus
from ..vgpu.instances import running_vgpus
from ..vgpu.licence import ask_licences, licence_of
from .devices import questions_for
from .live_health import DeviceHealth, own_use

_US_PER_S = 1_000_000
_NOT_ASKED = Unavailable(Absence.NOT_FOUND, "it was not queried")
_NOT_MEASURED = Unavailable(Absence.NOT_FOUND, "it is measured from one poll to the next")
_NO_HOST = Unavailable(Absence.DOES_NOT_APPLY, "this GPU hosts no vGPUs")
_SHARED = Unavailable(Absence.DOES_NOT_APPLY, "the driver names a GPU's processes, not those of each slice")
_UNDIVIDED = Unavailable(Absence.DOES_NOT_APPLY, "the driver counts a GPU's encoder sessions, not those of each slice")
_HARMLESS = frozenset({"idle", "applications clocks", "display clocks"})
"""Reasons for a lower clock that indicate no problem."""


class HealthPoll:
    """Polls this machine's devices; ``now_utc`` is the clock that decides whether licences have expired."""

    def __init__(self, nvml: NvmlLike, now_utc: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._nvml = nvml
        self._now_utc = now_utc
        self._devices: list[_Polled] = []
        self._watch: DeviceWatch | None = None
        self._polled_utc: datetime | None = None

    def poll(self, pids: frozenset[int]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Return every device's health; ``pids`` are the processes of codecfleet on this machine. Never raises.

        If the library fails, return the reason; the next poll opens the library again.
        """
        if self._watch is None or self._watch.failure is not None:
            self.close()
            opened = self._open()
            if isinstance(opened, Unavailable):
                return opened
            self._watch = opened
        now_utc = self._now_utc()
        since_us = 0 if self._polled_utc is None else int(self._polled_utc.timestamp() * _US_PER_S)
        xids = self._watch.poll()
        found = tuple(each for device in self._devices for each in device.poll(pids, xids, since_us, now_utc))
        self._polled_utc = now_utc
        return found

    def close(self) -> None:
        """Close the library; the next poll opens it again."""
        if self._watch is None:
            return
        self._watch.close()
        for device in self._devices:
            device.close()
        self._watch, self._devices = None, []
        ask_named(self._nvml, "nvmlShutdown")

    def _open(self) -> Maybe[DeviceWatch]:
        opened = ask_named(self._nvml, "nvmlInit")
        if isinstance(opened, Unavailable):
            return opened
        count = ask_named(self._nvml, "nvmlDeviceGetCount")
        if isinstance(count, Unavailable):
            ask_named(self._nvml, "nvmlShutdown")
            return count
        self._devices = [_Polled(self._nvml, index) for index in range(int(count))]
        handles = {each.name: each.handle for each in self._devices if not isinstance(each.handle, Unavailable)}
        return watch_events(self._nvml, handles)


class _Polled:
    """A polled device, with the samples that the next poll needs for comparison."""

    def __init__(self, nvml: NvmlLike, index: int) -> None:
        self.index = index
        self.name = str(index)  # the name under which the watch reports the device's events
        self.handle: Maybe[Any] = _NOT_ASKED
        self._nvml = nvml
        self._virtualization: Maybe[str] = _NOT_ASKED
        self._gpm: GpmMeasure | None = None
        self._last_names: dict[str, Maybe[str]] = {}
        self._reach()

    def _reach(self) -> None:
        """Query the handle and the virtualization mode, unless they are known."""
        if isinstance(self.handle, Unavailable):
            self.handle = ask_named(self._nvml, "nvmlDeviceGetHandleByIndex", self.index)
        if isinstance(self._virtualization, Unavailable):
            self._virtualization = ask_virtualization(questions_for(self._nvml, self.handle))

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.finish()
            self._gpm = None

    def poll(
        self, pids: frozenset[int], xids: tuple[XidEvent, ...], since_us: int, now_utc: datetime
    ) -> tuple[DeviceHealth, ...]:
        self._reach()
        questions = questions_for(self._nvml, self.handle, self._virtualization)
        mig = probe_mig(questions, ())
        is_cut = not isinstance(mig, Unavailable) and mig.enabled
        slices = () if isinstance(mig, Unavailable) or not mig.enabled else mig.slices
        percents = self._measured(questions, slices)
        mine = [event for event in xids if event.device == self.name]
        whole = self._whole(questions, pids, tuple(event.xid for event in mine), since_us, now_utc)
        if not is_cut:
            return (whole,)
        return tuple(_of_slice(whole, each, percents.get(each.gpu_instance, {}), mine) for each in slices)

    def _whole(
        self, questions: DeviceQuestions, pids: frozenset[int], xids: tuple[int, ...], since_us: int, now_utc: datetime
    ) -> DeviceHealth:
        use = probe_use(questions, since_us)
        # Only a vGPU host answers these queries (vGPU Management SDK guide, 2.4).
        is_host = self._virtualization == HOST
        hosting = DeviceQuestions(with_safe_vgpu_calls(self._nvml), self.handle) if is_host else None
        vgpus = () if hosting is None else running_vgpus(hosting)
        return DeviceHealth(
            index=self.index,
            uuid=self._named(questions, "nvmlDeviceGetUUID", read_text),
            pci_bus_id=self._named(questions, "nvmlDeviceGetPciInfo", lambda pci: read_text(pci.busId)),
            name=known(self._named(questions, "nvmlDeviceGetName", read_text), f"GPU {self.index}"),
            is_slice=False,
            memory=questions.ask("nvmlDeviceGetMemoryInfo", read=read_memory),
            throttle=_throttle(questions),
            decoder_percent=use.decoder_percent,
            encoder_percent=use.encoder_percent,
            encoder_sessions=use.encoder_sessions_open,
            ours=own_use(use, pids),
            licence=licence_of(ask_licences(questions), now_utc),
            accounting=questions.ask("nvmlDeviceGetAccountingMode", read=bool),
            scheduler=_NO_HOST if hosting is None else ask_scheduler(hosting),
            vgpus=vgpus,
            creatable={} if hosting is None else creatable_vgpus(hosting, len(vgpus)),
            health=probe_health(questions, xids),
        )

    def _named(self, questions: DeviceQuestions, function: str, read: Callable[[Any], str]) -> Maybe[str]:
        """Query one of the device's names; if the device is lost, return the last answer."""
        answer = questions.ask(function, read=read)
        if isinstance(answer, Unavailable):
            return self._last_names.get(function, answer)
        self._last_names[function] = answer
        return answer

    def _measured(self, questions: DeviceQuestions, slices: tuple[MigSlice, ...]) -> dict[int, Percents]:
        """Return how busy the engines of each slice were since the last poll (GPM), and start the next measurement."""
        measured = {} if self._gpm is None else self._gpm.finish(slices)
        self._gpm = begin_gpm(questions, slices) if slices else None
        return measured


def _of_slice(whole: DeviceHealth, piece: MigSlice, percents: Percents, events: list[XidEvent]) -> DeviceHealth:
    xids = tuple(event.xid for event in events if event.gpu_instance in (None, piece.gpu_instance))
    return replace(
        whole,
        uuid=piece.uuid,
        name=f"{whole.name} MIG {piece.profile}",
        is_slice=True,
        health=replace(whole.health, xids=xids),
        ours=_SHARED,
        encoder_sessions=_UNDIVIDED,
        memory=piece.memory,
        decoder_percent=percents.get(Engine.NVDEC, _NOT_MEASURED),
        encoder_percent=percents.get(Engine.NVENC, _NOT_MEASURED),
    )


def _throttle(questions: DeviceQuestions) -> Maybe[str]:
    """Return why clocks are held down."""
    harmless = sum(bit for bit, name in CLOCK_REASONS.items() if name in _HARMLESS)
    return questions.ask("nvmlDeviceGetCurrentClocksEventReasons", read=lambda mask: read_reasons(mask & ~harmless))
