"""NVML without a GPU: pynvml's functions, answered from a simulated node. The fake proves nothing about a driver.

    nvml = FakeNvml(node)
    nvml.device("GPU-1").encoder_percent = 80
    nvml.lose_gpu("GPU-1")

Names, arguments, structures and exceptions are those of pynvml. A function that the fake lacks raises
``AttributeError``. Answers follow NVIDIA's documents and one H200 (driver 580.159).
"""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml

from ...cluster.simulated.devices import SimulatedNode
from .fake_nvml_device import DEVICE_ANSWERS, check
from .fake_nvml_mig import MIG_ANSWERS, SLICE_ANSWERS, GpmSamples, placements_of, profile_with_id, profiles_of
from .fake_nvml_state import FakeGpuInstance, FakeNvmlDevice, FakeSlice, address_of, refuse
from .fake_nvml_vgpu import HOST_ANSWERS, INSTANCE_ANSWERS, TYPE_ANSWERS, compatibility, find_type, find_vgpu

NO_INSTANCE = 0xFFFFFFFF
CUDA_BY_BRANCH = {615: 13040, 610: 13030, 595: 13020, 590: 13010, 580: 13000, 570: 12080, 550: 12040, 525: 12000}
CUDA_OF_OLD_DRIVERS = 11080

_ON_DEVICES = {**DEVICE_ANSWERS, **MIG_ANSWERS, **HOST_ANSWERS}


class FakeNvml:
    """Answers pynvml's calls for one simulated node.

    ``clock`` decides when changes scheduled with ``at`` apply; it may be a ``FakeClock``. ``faults`` maps function
    names to return codes for all devices; ``SimulatedDevice.faults`` and ``device(...).faults`` do so for one device.
    Set a device's utilisation on the object that ``device(...)`` returns. ``calls`` has the names of the called
    functions, in order. ``library_code`` is the code with which every call fails, for example because the library is
    missing; 0 if calls do not fail.
    """

    def __init__(self, node: SimulatedNode, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.node = node
        self._clock = clock
        self._plan: list[tuple[float, Callable[[], object]]] = []
        self.faults: dict[str, int] = {}
        self.calls: list[str] = []
        self.devices = tuple(
            FakeNvmlDevice.of(device, node, index)
            for index, device in enumerate(each for each in node.devices if not each.kind.is_processor)
        )
        self.gpm = GpmSamples()
        self._opened = 0
        self.library_code = 0 if self.devices else int(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self._subjects: dict[int, FakeNvmlDevice | FakeSlice] = {}
        self._instances: dict[int, FakeGpuInstance] = {}
        self._event_sets: dict[int, list[FakeNvmlDevice]] = {}
        self._next_event_set = 0x7000_0000
        self._system = self._system_answers()

    def device(self, uuid: str) -> FakeNvmlDevice:
        """Return a device by UUID, so that its use can be set. Raises ``KeyError`` if the node has no such device."""
        for device in self.devices:
            if device.simulated.uuid == uuid:
                return device
        raise KeyError(uuid)

    def at(self, at_s: float, change: Callable[[], object]) -> None:
        """Schedule a change; the first query at ``at_s`` or later applies it.

        nvml.at(20, lambda: nvml.raise_xid("GPU-1", 48))
        """
        self._plan.append((at_s, change))

    def lose_gpu(self, uuid: str) -> None:
        """Make a GPU fall off the bus: Xid 79, and every query about it returns GPU_IS_LOST."""
        self.raise_xid(uuid, 79)
        self.device(uuid).lost_code = int(pynvml.NVML_ERROR_GPU_IS_LOST)

    def raise_xid(self, uuid: str, xid: int) -> None:
        """Raise an Xid error, which is kept until an event set that watches the device is read."""
        self.device(uuid).events.append((int(pynvml.nvmlEventTypeXidCriticalError), xid))

    @property
    def is_open(self) -> bool:
        """Whether the library is initialised and not shut down."""
        return self._opened > 0

    def __getattr__(self, name: str) -> Any:
        answer = self._answer(name)
        if answer is not None:
            call = partial(self._call, name, answer)
            call.__name__ = name  # type: ignore[attr-defined] # an attribute of pynvml functions
            return call
        is_library_function = name.startswith("nvml") and callable(getattr(pynvml, name, None))
        if name.startswith("_") or is_library_function:
            raise AttributeError(name)
        return getattr(pynvml, name)

    def _answer(self, name: str) -> Callable[..., Any] | None:
        if name in self._system:
            return self._system[name]
        if name in _ON_DEVICES or name in SLICE_ANSWERS:
            return partial(self._ask_device, name)
        if name in TYPE_ANSWERS:
            return lambda number, *arguments: TYPE_ANSWERS[name](*find_type(self.devices, number), *arguments)
        if name in INSTANCE_ANSWERS:
            return lambda number, *arguments: INSTANCE_ANSWERS[name](*find_vgpu(self.devices, number), *arguments)
        return None

    def _call(self, name: str, answer: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(name)
        due = [entry for entry in self._plan if entry[0] <= self._clock()]
        self._plan = [entry for entry in self._plan if entry not in due]
        for _, change in sorted(due, key=lambda entry: entry[0]):
            change()
        if name in self.faults:
            refuse(self.faults[name])
        if name == "nvmlInit":
            return answer()
        if not self._opened:
            refuse(pynvml.NVML_ERROR_UNINITIALIZED)
        if self.library_code and name != "nvmlShutdown":
            refuse(self.library_code)
        return answer(*arguments)

    def _ask_device(self, name: str, handle: object, *arguments: Any) -> Any:
        subject = self._subject(handle, name)
        if isinstance(subject, FakeSlice):
            if name not in SLICE_ANSWERS:
                refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return SLICE_ANSWERS[name](subject, *arguments)
        if name not in _ON_DEVICES:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return _ON_DEVICES[name](subject, *arguments)

    def _subject(self, handle: object, name: str) -> FakeNvmlDevice | FakeSlice:
        subject = self._subjects.get(address_of(handle))
        if subject is None:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if isinstance(subject, FakeSlice):
            check(subject.device, name, of_a_part=True)
        else:
            check(subject, name)
        return subject

    def _device_of(self, handle: object, name: str) -> FakeNvmlDevice:
        subject = self._subject(handle, name)
        return subject if isinstance(subject, FakeNvmlDevice) else refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def _handle(self, subject: FakeNvmlDevice | FakeSlice, address: int) -> Any:
        self._subjects[address] = subject
        return ctypes.cast(ctypes.c_void_p(address), pynvml.c_nvmlDevice_t)

    def _system_answers(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlSystemGetDriverVersion": lambda: self.node.driver,
            "nvmlSystemGetCudaDriverVersion_v2": self._cuda_version,
            "nvmlDeviceGetCount": lambda: len(self.devices),
            "nvmlDeviceGetHandleByIndex": self._device_handle,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._mig_handle,
            "nvmlDeviceGetGpuInstances": self._gpu_instances,
            "nvmlDeviceGetGpuInstanceById": self._gpu_instance,
            "nvmlGpuInstanceGetInfo": self._gpu_instance_info,
            "nvmlGpmSampleAlloc": self.gpm.alloc,
            "nvmlGpmSampleFree": self.gpm.free,
            "nvmlGpmMigSampleGet": self._gpm_take_slice,
            "nvmlGpmMetricsGet": self.gpm.measure,
            "nvmlEventSetCreate": self._create_event_set,
            "nvmlDeviceRegisterEvents": self._register,
            "nvmlEventSetWait_v2": self._wait,
            "nvmlEventSetFree": lambda event_set: self._event_sets.pop(address_of(event_set)),
            "nvmlGetVgpuCompatibility": compatibility,
        }

    # The functions that take no device, or return handles.

    def _init(self) -> None:
        if self.library_code:
            refuse(self.library_code)
        self._opened += 1

    def _shutdown(self) -> None:
        self._opened -= 1

    def _cuda_version(self) -> int:
        branch = int(self.node.driver.partition(".")[0] or 0)
        return next((cuda for least, cuda in CUDA_BY_BRANCH.items() if branch >= least), CUDA_OF_OLD_DRIVERS)

    def _device_handle(self, index: int) -> Any:
        if not 0 <= index < len(self.devices):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        device = self.devices[index]
        name = "nvmlDeviceGetHandleByIndex"
        if name in device.faults:
            refuse(device.faults[name])
        return self._handle(device, 0x1000_0000 + index * 0x10000)

    def _mig_handle(self, handle: object, place: int) -> Any:
        device = self._device_of(handle, "nvmlDeviceGetMigDeviceHandleByIndex")
        if not device.simulated.mig_enabled or not 0 <= place < len(device.slices):
            refuse(pynvml.NVML_ERROR_NOT_FOUND)
        return self._handle(device.slices[place], address_of(handle) + (place + 1) * 0x100)

    def _cut(self, handle: object, name: str) -> FakeNvmlDevice:
        device = self._device_of(handle, name)
        return device if device.simulated.mig_enabled else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _gpu_instances(self, handle: object, profile_id: int, instances: Any, count: Any) -> int:
        device = self._cut(handle, "nvmlDeviceGetGpuInstances")
        profile = profile_with_id(device, profile_id)
        array, found = ctypes.cast(instances, ctypes.POINTER(ctypes.c_void_p)), 0
        for each in device.gpu_instances:
            if each.slices[0].simulated.profile == profile.name:
                array[found] = self._instance_address(each)
                found += 1
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = found
        return int(pynvml.NVML_SUCCESS)

    def _gpu_instance(self, handle: object, number: int) -> Any:
        for each in self._cut(handle, "nvmlDeviceGetGpuInstanceById").gpu_instances:
            if each.number == number:
                return ctypes.cast(ctypes.c_void_p(self._instance_address(each)), pynvml.c_nvmlGpuInstance_t)
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def _gpu_instance_info(self, handle: object) -> Any:
        found = self._instances.get(address_of(handle)) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        check(found.device, "nvmlGpuInstanceGetInfo", of_a_part=True)
        profiles = profiles_of(found.device)
        profile = next(each for each in profiles if each.name == found.slices[0].simulated.profile)
        places = placements_of(profiles, [piece.simulated for piece in found.device.slices])
        return pynvml.c_nvmlGpuInstanceInfo_t(
            device=self._device_handle(found.device.index),
            id=found.number,
            profileId=profile.profile_id,
            placement=pynvml.c_nvmlGpuInstancePlacement_t(*places[found.number]),
        )

    def _instance_address(self, instance: FakeGpuInstance) -> int:
        address = 0x4000_0000 + instance.device.index * 0x1000 + instance.number * 0x10
        self._instances[address] = instance
        return address

    def _gpm_take_slice(self, handle: object, gpu_instance: int, sample: object) -> object:
        device = self._device_of(handle, "nvmlGpmMigSampleGet")
        for piece in device.slices:
            if piece.simulated.gpu_instance == gpu_instance:
                return self.gpm.take(piece, sample)
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def _create_event_set(self) -> Any:
        self._next_event_set += 0x10
        self._event_sets[self._next_event_set] = []
        return ctypes.cast(ctypes.c_void_p(self._next_event_set), pynvml.c_nvmlEventSet_t)

    def _register(self, handle: object, _types: int, event_set: object) -> None:
        device = self._device_of(handle, "nvmlDeviceRegisterEvents")
        if device.is_igpu:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._event_sets[address_of(event_set)].append(device)

    def _wait(self, event_set: object, _timeout_ms: int) -> Any:
        for device in self._event_sets.get(address_of(event_set), ()):
            if device.events:
                kind, data = device.events.pop(0)
                return pynvml.c_nvmlEventData_t(
                    device=self._device_handle(device.index),
                    eventType=kind,
                    eventData=data,
                    gpuInstanceId=NO_INSTANCE,
                    computeInstanceId=NO_INSTANCE,
                )
        return refuse(pynvml.NVML_ERROR_TIMEOUT)  # reported at once, because tests do not wait
