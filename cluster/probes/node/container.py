"""Reports which parts of NVIDIA's driver a container has, and judges known pitfalls.

The codec libraries may load although the container's variables do not request video (seen on an H200), so the probe
tries to load them.
"""

import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..cuda.report import CudaReport
from ..cuda.tables import newest_cuda_of, version_numbers
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.gpu_identity import is_geforce
from ..report.verdict import Diagnosis, Grade

SHARED_MEMORY_NEEDED_BYTES = 128 << 20
_SUBSET_TROUBLE_BRANCHES = (570, 580)
_SHORT = 80
_COMPAT = re.compile(r"(^|/)compat([-_][^/]*)?/?$|/cuda-compat")
_RUNTIME_WORDS = ("kubepods", "docker", "libpod", "containerd", "lxc")
_NOT_A_CONTAINER = Unavailable(Absence.DOES_NOT_APPLY, "nothing here looks like a container")
_VOID = frozenset({"", "void", "none"})
_CERTAINTY = (False, None, True)
_CONDITION = re.compile(r"^([a-z]+)(<=|>=|!=|<|>|=)(.+)$")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """The runtime, variables and devices of a container."""

    runtime: Maybe[str]  #: "docker", "podman" or "kubernetes"; absent outside containers
    capabilities: tuple[str, ...] | None  #: NVIDIA_DRIVER_CAPABILITIES; None if unset
    visible_devices: str | None  #: NVIDIA_VISIBLE_DEVICES; None if unset
    requirements: dict[str, str]  #: the NVIDIA_REQUIRE_* variables
    is_requirement_disabled: bool  #: whether NVIDIA_DISABLE_REQUIRE is set
    compat_folders: tuple[str, ...]  #: folders of compat packages in LD_LIBRARY_PATH
    device_minors: tuple[int, ...]  #: the number N of each /dev/nvidiaN
    shared_memory_bytes: Maybe[int]  #: the size of /dev/shm


def probe_container(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> ContainerReport:
    """Report this process's container, from its variables and the files under ``root``; never raises."""
    capabilities = environ.get("NVIDIA_DRIVER_CAPABILITIES")
    searched = environ.get("LD_LIBRARY_PATH", "").split(":")
    minors = (path.name.removeprefix("nvidia") for path in root.glob("dev/nvidia[0-9]*"))
    return ContainerReport(
        runtime=_runtime(environ, root),
        capabilities=None if capabilities is None else tuple(word for word in capabilities.split(",") if word),
        visible_devices=environ.get("NVIDIA_VISIBLE_DEVICES"),
        requirements={name: text for name, text in sorted(environ.items()) if name.startswith("NVIDIA_REQUIRE_")},
        is_requirement_disabled=environ.get("NVIDIA_DISABLE_REQUIRE", "").lower() in {"1", "true"},
        compat_folders=tuple(folder for folder in searched if _COMPAT.search(folder)),
        device_minors=tuple(sorted(int(minor) for minor in minors if minor.isdigit())),
        shared_memory_bytes=_shared_memory_bytes(root),
    )


def _runtime(environ: Mapping[str, str], root: Path) -> Maybe[str]:
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    if environ.get("container"):
        return environ["container"]
    try:
        control_groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _NOT_A_CONTAINER
    found = next((word for word in _RUNTIME_WORDS if word in control_groups), None)
    return {"kubepods": "kubernetes", "libpod": "podman"}.get(found, found) if found else _NOT_A_CONTAINER


def _shared_memory_bytes(root: Path) -> Maybe[int]:
    folder = root / "dev/shm"
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return Unavailable(Absence.NOT_FOUND, f"the size of {folder} cannot be read: {error.strerror}")
    return found.f_blocks * found.f_frsize


def judge_container(container: ContainerReport, cuda: CudaReport, brand: str = "") -> tuple[Diagnosis, ...]:
    """Return a verdict for each pitfall; outside a container, there are no verdicts.

    ``brand`` is the brand of the GPUs in NVML ("tesla"), for NVIDIA_REQUIRE_CUDA; "" if unknown.
    """
    if isinstance(container.runtime, Unavailable):
        return ()
    return (
        *_shared_memory(container),
        *_no_devices(container, cuda),
        *_capabilities(container, cuda),
        *_requirements(container, host_facts(cuda, brand)),
        *_compat(container, cuda),
        *_subset(container, cuda),
    )


def _shared_memory(container: ContainerReport) -> Iterator[Diagnosis]:
    size = container.shared_memory_bytes
    subject, rule = "shared memory", "Ray keeps its objects in /dev/shm"
    if isinstance(size, Unavailable):
        yield Diagnosis(subject, Grade.UNKNOWN, rule, size.reason)
    elif size < SHARED_MEMORY_NEEDED_BYTES:
        because = f"it has {size >> 20} MiB; below {SHARED_MEMORY_NEEDED_BYTES >> 20} MiB, objects go to disk"
        fix = "start the container with --shm-size=2g (Kubernetes: an emptyDir of medium Memory at /dev/shm)"
        yield Diagnosis(subject, Grade.LIMITED, rule, because, fix, ("segments pass through files, which is slower",))


def _no_devices(container: ContainerReport, cuda: CudaReport) -> Iterator[Diagnosis]:
    """Judge a container that has no GPU although NVIDIA_VISIBLE_DEVICES is set."""
    asked = container.visible_devices
    if asked is None or container.device_minors or cuda.init_code == 0:
        return
    because = f'it is "{asked}", but there is no /dev/nvidiaN here'
    fix = "on a machine with GPUs, run it with NVIDIA's container runtime (--gpus all, or --runtime=nvidia)"
    if asked in _VOID:
        because = f'it is "{asked}", so the container was given no GPU'
        fix = "to use GPUs, start it with --gpus all -e NVIDIA_VISIBLE_DEVICES=all"
    rule = "the container gets the devices that the variable names"
    yield Diagnosis("NVIDIA_VISIBLE_DEVICES", Grade.UNKNOWN, rule, because, fix)


def _capabilities(container: ContainerReport, cuda: CudaReport) -> Iterator[Diagnosis]:
    """Judge whether the codec libraries load; the container's capabilities only explain the result."""
    if isinstance(cuda.library, Unavailable):
        return
    given = container.capabilities
    value = "it is not set" if given is None else f"it is {','.join(given) or 'empty'}"
    has_video = bool({"video", "all"} & set(given or ()))
    codecs = {name: path for name, path in cuda.codec_libraries.items() if name != "libnvidia-ml.so.1"}
    absent = " and ".join(name for name, path in codecs.items() if isinstance(path, Unavailable))
    grade, fix = Grade.BROKEN, ""
    if not absent:
        aside = "" if has_video else ", without video, but"
        grade, because = Grade.OK, f"{value}{aside or ';'} the codec libraries load"
    elif has_video:
        because = f"{value}, but {absent} cannot be loaded"
        fix = "install the driver's decode and encode libraries on the host, and start the container again"
    else:
        because = f"{value}, without video, and {absent} cannot be loaded"
        fix = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
    rule = "the codec libraries must load, whatever the variable says"
    yield Diagnosis("NVIDIA_DRIVER_CAPABILITIES", grade, rule, because, fix)


def _requirements(container: ContainerReport, host: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Judge each requirement that the image states for the host."""
    rule = "an image's requirements: a space means or, a comma means and (NVIDIA Container Toolkit)"
    for name, text in container.requirements.items():
        met = evaluate(text, host)
        if met is None:
            because = f"these conditions cannot be checked here: {_short(', '.join(undecided(text, host)))}"
            yield Diagnosis(name, Grade.UNKNOWN, rule, because, limits=("the image's requirement is not checked",))
        elif met:
            yield Diagnosis(name, Grade.OK, rule, "the host's driver meets it")
        else:
            driver, newest_cuda = host.get("driver", ""), host.get("cuda", "")
            because = f'"{_short(text)}" does not hold: the driver is {driver}, for CUDA {newest_cuda}'
            if container.is_requirement_disabled:
                because += " (NVIDIA_DISABLE_REQUIRE only skips the check)"
            fix = f"use an image for CUDA {newest_cuda} or older, or install a newer driver on the host"
            yield Diagnosis(name, Grade.LIMITED, rule, because, fix, ("the image's own CUDA programs may fail",))


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def _compat(container: ContainerReport, cuda: CudaReport) -> Iterator[Diagnosis]:
    """Report a compat package in LD_LIBRARY_PATH; ``judge_forward`` judges whether the package fits the driver."""
    if not container.compat_folders or isinstance(cuda.library, Unavailable):
        return
    folders, grade, fix = ":".join(container.compat_folders), Grade.OK, ""
    because = f"LD_LIBRARY_PATH names {folders}, but the driver's own libcuda was loaded"
    if cuda.library.in_compat_folder:
        because = f"libcuda comes from {cuda.library.path}"
        if cuda.init_code != 0:
            grade, fix = Grade.BROKEN, f"remove {folders} from LD_LIBRARY_PATH"
    rule = "some images set LD_LIBRARY_PATH (CUDA Compatibility, chapter 5)"
    yield Diagnosis("compat package in LD_LIBRARY_PATH", grade, rule, because, fix)


def _subset(container: ContainerReport, cuda: CudaReport) -> Iterator[Diagnosis]:
    """Warn if the container sees only some of the host's GPUs; with R570 and R580, codecs may work on only one of them.

    Users reported this for GeForce cards (nvidia-container-toolkit 1249 and 1415, k8s-device-plugin 1282). Nothing is
    known about data-centre GPUs.
    """
    minors = container.device_minors
    is_named = (container.visible_devices or "all") not in {"all", *_VOID}
    # A gap in the device numbers also means that the container sees only some GPUs.
    is_subset = bool(minors) and (is_named or minors != tuple(range(len(minors))))
    if isinstance(cuda.kernel_module, Unavailable) or not is_subset:
        return
    branch = version_numbers(cuda.kernel_module.version)[0]
    if branch in _SUBSET_TROUBLE_BRANCHES:
        yield Diagnosis(
            "part of the host's GPUs",
            Grade.LIMITED if any(is_geforce(device.name) for device in cuda.devices) else Grade.UNKNOWN,
            "reported for GeForce cards",
            f"on R{branch}, codecs failed on all but one GPU of containers that see only some of the host's GPUs",
            "give the container all GPUs (--gpus all), select some with CUDA_VISIBLE_DEVICES, and test a frame on each",
            ("decoding or encoding may fail on some of the GPUs",),
        )


def host_facts(report: CudaReport, brand: str = "") -> dict[str, str]:
    """Return the facts about the host that NVIDIA_REQUIRE_CUDA may test; an unknown fact is "".

    ``cuda`` is the CUDA version of the kernel driver, without a compat package. ``arch`` is the architecture of the
    first device, as in the container runtime.
    """
    module = report.kernel_module
    driver = "" if isinstance(module, Unavailable) else module.version
    capabilities = (known(device.compute_capability, "") for device in report.devices)
    arch = next(filter(None, capabilities), "")
    return {"driver": driver, "cuda": newest_cuda_of(driver) if driver else "", "brand": brand.lower(), "arch": arch}


def evaluate(requirement: str, host: Mapping[str, str]) -> bool | None:
    """Return whether a host meets an image's NVIDIA_REQUIRE_CUDA; None if that depends on an unknown fact.

    For example, ``cuda>=12.4 brand=tesla,driver>=470`` means: CUDA 12.4 or later, or a Tesla with driver R470 or later.
    Every host meets an empty requirement.
    """
    found = ([_holds(each, host) for each in alternative.split(",")] for alternative in requirement.split())
    return max((min(each, key=_CERTAINTY.index) for each in found), key=_CERTAINTY.index, default=True)


def undecided(requirement: str, host: Mapping[str, str]) -> tuple[str, ...]:
    """Return the conditions that cannot be checked, because they are malformed or a fact about the host is unknown."""
    conditions = (condition for alternative in requirement.split() for condition in alternative.split(","))
    return tuple(dict.fromkeys(condition for condition in conditions if _holds(condition, host) is None))


def _holds(condition: str, host: Mapping[str, str]) -> bool | None:
    match = _CONDITION.match(condition)
    fact = host.get(match[1], "") if match else ""
    if match is None or not fact:
        return None
    subject, compared, wanted = match.groups()
    if subject == "brand":
        return {"=": fact == wanted, "!=": fact != wanted}.get(compared)
    left, right = version_numbers(fact), version_numbers(wanted)
    if not right:
        return None
    # "12.4" and "12.4.0" are the same version.
    width = max(len(left), len(right))
    return _COMPARE[compared](left + (0,) * (width - len(left)), right + (0,) * (width - len(right)))
