"""Probes this machine, for ``codecfleet doctor`` and as a Ray task on each node.

Each probe has a time limit; another limit applies to all probes together.
"""

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from ....actors.background import settle
from ... import machine
from ...version import installed
from ..child.child import STUCK_S, ChildOutcome, Probe, run_in_child
from ..cuda.choosing import LIBRARY_PATH, NO_CHOICE, DriverChoice, choose_driver
from ..cuda.driver import probe_cuda
from ..cuda.pynvvideocodec import probe_pynvvideocodec
from ..cuda.report import CudaReport
from ..gpus.devices import NvmlReport
from ..gpus.nvml_child import NvmlAnswers, probe_nvml_in_child
from ..report.absence import Absence, Maybe, Unavailable, known
from ..tegra.module import CudaAnswers, TegraReport, probe_tegra
from ..trials.cache import cache_folder
from ..trials.software import SoftwareTrials, probe_software
from .container import probe_container
from .report import HostReport, NodeReport, ProbeProblem
from .trials import TrialPlan, subjects, try_devices

T = TypeVar("T")

PACKAGES: Final = ("codecfleet", "ray", "av", "nvidia-ml-py", "PyNvVideoCodec", "cuda-python")
"""The packages whose versions are reported."""
_TRIED_WITH: Final = ("codecfleet", "av", "PyNvVideoCodec")

_AFTER_LIMIT_S: Final = STUCK_S + 1
"""The longest time between the end of a child's limit and the answer of its probe."""
_NVML_LIMIT_S, _CUDA_LIMIT_S, _PACKAGE_LIMIT_S, _SOFTWARE_LIMIT_S, _TEGRA_LIMIT_S = 15.0, 20.0, 20.0, 30.0, 10.0


class _Probes:
    """Runs probes in parallel and collects their problems."""

    def __init__(self, ends_s: float) -> None:
        self._ends_s = ends_s
        self.problems: list[ProbeProblem] = []

    def remaining_s(self, limit_s: float) -> float:
        """Return ``limit_s``, or the remaining time of all probes if that is shorter."""
        return max(0.1, min(limit_s, self._ends_s - time.monotonic()))

    def start(self, probe: Callable[[], T]) -> "Future[T]":
        """Run a probe in a daemon thread, so that a hanging probe does not keep the process alive."""
        future: Future[T] = Future()
        threading.Thread(target=settle, args=(future, probe), daemon=True).start()
        return future

    def result(self, name: str, future: "Future[T] | Future[Maybe[T]]", limit_s: float) -> Maybe[T]:
        """Return a probe's answer, or why there is none."""
        wait_s = self.remaining_s(limit_s)
        try:
            return future.result(timeout=wait_s)
        except TimeoutError:
            absence = Unavailable(Absence.TIMED_OUT, f"no answer within {wait_s:.3g} s")
        except Exception as error:  # noqa: BLE001 - a defect in one probe must not stop the others
            absence = Unavailable(Absence.FAILED, f"{type(error).__name__}: {error}")
        self.problems.append(ProbeProblem(name, absence.reason))
        return absence


def probe_node(*, fresh: bool = False, software: bool = True, limit_s: float = 120.0) -> NodeReport:
    """Run all probes on this machine within ``limit_s``; never raises.

    ``fresh`` ignores cached trials. Without ``software``, software codecs are tried only if the trials of a device need
    bitstreams. The report's ``probe_problems`` names the probes that did not finish.
    """
    began_s = time.monotonic()
    probes = _Probes(began_s + limit_s)
    nvml = probes.start(lambda: probe_nvml_in_child(_NVML_LIMIT_S))
    cuda = probes.start(lambda: probe_cuda(_CUDA_LIMIT_S, every_device=True))
    package = probes.start(lambda: probe_pynvvideocodec(_PACKAGE_LIMIT_S))
    streams = probes.start(lambda: probe_software(_SOFTWARE_LIMIT_S)) if software else None
    container = probes.start(lambda: probe_container(os.environ, Path("/")))
    answers = probes.result("NVML", nvml, _NVML_LIMIT_S + _AFTER_LIMIT_S)
    found = answers if isinstance(answers, NvmlAnswers) else NvmlAnswers(answers)
    cuda_found = probes.result("CUDA", cuda, _CUDA_LIMIT_S + _AFTER_LIMIT_S)
    choice, cuda_report = _chosen(probes, cuda_found)
    tegra = probes.start(lambda: _tegra_of(cuda_report))
    # A variable, because mypy would infer another type for this call inside NodeReport().
    in_container = probes.result("container", container, _TEGRA_LIMIT_S)
    imported = probes.result("PyNvVideoCodec", package, _PACKAGE_LIMIT_S + _AFTER_LIMIT_S)
    # No device can be tried without PyNvVideoCodec. The package has a separate verdict.
    can_try = not isinstance(imported, Unavailable) and not isinstance(imported.picked, Unavailable)
    to_try = subjects(found.nvml, cuda_report) if can_try else ()
    codecs = SoftwareTrials((), {}, ())
    if software or to_try:
        streams = streams or probes.start(lambda: probe_software(_SOFTWARE_LIMIT_S))
        tried = probes.result("software codecs", streams, _SOFTWARE_LIMIT_S + _AFTER_LIMIT_S)
        codecs = known(tried, codecs)
    host = _host_report()
    plan = _trial_plan(host, found.nvml, choice, fresh=fresh, ends_s=began_s + limit_s - 1)
    driver = {} if choice.search_path is None else {LIBRARY_PATH: choice.search_path}

    def run(probe: Probe, arguments: Mapping[str, Any], limit_s: float, environment: Mapping[str, str]) -> ChildOutcome:
        return run_in_child(probe, arguments, limit_s, {**driver, **environment})

    devices, troubles = try_devices(to_try, codecs.streams, plan, run=run)
    probes.problems += [ProbeProblem("NVML", line) for line in found.problems]
    probes.problems += [ProbeProblem("codec trials", line) for line in (*codecs.problems, *troubles)]
    return NodeReport(
        host=host,
        nvml=found.nvml,
        cuda=cuda_report,
        container=in_container,
        pynvvideocodec=imported,
        tegra=probes.result("Tegra", tegra, 3 * _TEGRA_LIMIT_S),
        vgpu_hosts=found.vgpu_hosts,
        software=codecs.trials,
        devices=devices,
        probe_problems=tuple(probes.problems),
        simulated="",
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began_s, 3),
        driver_choice=choice,
    )


def _chosen(probes: _Probes, found: Maybe[CudaReport]) -> tuple[DriverChoice, Maybe[CudaReport]]:
    """Return which driver the workers load, with that driver's CUDA report; a compat package that fits is tried."""
    if isinstance(found, Unavailable):
        return NO_CHOICE, found

    def try_path(path: str) -> CudaReport:
        return probe_cuda(
            probes.remaining_s(_CUDA_LIMIT_S), every_device=True, environ={**os.environ, LIBRARY_PATH: path}
        )

    return choose_driver(found, os.environ, try_path)


def _trial_plan(
    host: HostReport, nvml: Maybe[NvmlReport], choice: DriverChoice, *, fresh: bool, ends_s: float
) -> TrialPlan:
    return TrialPlan(
        driver="" if isinstance(nvml, Unavailable) else known(nvml.driver_version, ""),
        packages=(*(f"{name} {host.packages[name]}" for name in _TRIED_WITH), *filter(None, [choice.folder])),
        folder=cache_folder(),
        fresh=fresh,
        ends_s=ends_s,
    )


def _tegra_of(cuda: Maybe[CudaReport]) -> Maybe[TegraReport]:
    """Probe a Tegra, with CUDA's report on its GPU. On other machines, no program is run."""
    if isinstance(cuda, Unavailable) or not cuda.devices:
        return probe_tegra(limit_s=_TEGRA_LIMIT_S)
    gpu = cuda.devices[0]
    has = {name: value for name, value in gpu.attributes.items() if not isinstance(value, Unavailable)}
    register = has.get("host_register_supported")
    said = CudaAnswers(
        capability=_pair(gpu.compute_capability),
        version=_pair(cuda.cuda_version),
        free_bytes=gpu.free_bytes,
        host_register_supported=None if register is None else bool(register),
        concurrent_managed_access=bool(has.get("concurrent_managed_access")),
    )
    return probe_tegra(cuda=said, limit_s=_TEGRA_LIMIT_S)


def _pair(version_text: Maybe[str]) -> Maybe[tuple[int, int]]:
    if isinstance(version_text, Unavailable):
        return version_text
    major, _, minor = version_text.partition(".")
    return int(major), int(minor or 0)


def _host_report() -> HostReport:
    system = os.uname()
    return HostReport(
        name=system.nodename,
        cores=machine.cores(),
        memory_bytes=machine.memory_bytes(),
        kernel=system.release,
        machine=system.machine,
        python=f"{platform.python_implementation()} {'.'.join(map(str, sys.version_info[:3]))}",
        packages={name: installed(name) for name in PACKAGES},
        machine_uuid=_machine_uuid(),
    )


def _machine_uuid() -> str:
    """Return the machine's UUID from the firmware, which only root may read; "" if it cannot be read."""
    try:
        return Path("/sys/class/dmi/id/product_uuid").read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""
