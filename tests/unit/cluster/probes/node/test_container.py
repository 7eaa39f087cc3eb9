from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.report import CudaReport
from codecfleet.cluster.probes.node.container import (
    ContainerReport,
    evaluate,
    host_facts,
    judge_container,
    probe_container,
)
from codecfleet.cluster.probes.report.absence import Unavailable

from ..cuda_reports import NO, report

CODECS = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.1", "libnvidia-encode.so.1": "/usr/lib/libnvidia-encode.so.1"}
HOST = {"driver": "580.159.04", "cuda": "13.0", "brand": "tesla", "arch": "9.0"}
OF_CUDA_13 = "cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=570,driver<571"


def cuda(**changes: object) -> CudaReport:
    """Return a complete driver, except for ``changes``."""
    return report(**{"codec_libraries": CODECS, **changes})  # type: ignore[arg-type]


def container(**changes: object) -> ContainerReport:
    """Return a container with all of the driver, except for ``changes``."""
    found = ContainerReport(
        runtime="docker",
        capabilities=("compute", "utility", "video"),
        visible_devices="all",
        requirements={},
        is_requirement_disabled=False,
        compat_folders=(),
        device_minors=(0,),
        shared_memory_bytes=2 << 30,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "files", "runtime"),
    [
        ({}, {".dockerenv": ""}, "docker"),
        ({}, {"run/.containerenv": "", ".dockerenv": ""}, "podman"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {".dockerenv": ""}, "kubernetes"),
        ({"container": "lxc"}, {}, "lxc"),
        ({}, {"proc/1/cgroup": "0::/kubepods.slice/x"}, "kubernetes"),
        ({}, {"proc/1/cgroup": "12:pids:/docker/abc"}, "docker"),
    ],
)
def test_a_container_is_recognised(
    environ: dict[str, str], files: dict[str, str], runtime: str, tmp_path: Path
) -> None:
    """Each container runtime is recognised by a file or a variable."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert probe_container(environ, tmp_path).runtime == runtime


def test_a_plain_machine_is_no_container(tmp_path: Path) -> None:
    """A plain machine has no container runtime, no variables and no verdict."""
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/cgroup").write_text("0::/init.scope\n")
    found = probe_container({}, tmp_path)
    assert isinstance(found.runtime, Unavailable)
    assert (found.capabilities, found.visible_devices, found.requirements) == (None, None, {})
    assert isinstance(found.shared_memory_bytes, Unavailable)
    assert judge_container(found, cuda()) == ()


def test_what_a_container_was_started_with_is_read(tmp_path: Path) -> None:
    """Variables, device nodes and shared memory are in the report."""
    (tmp_path / "dev/shm").mkdir(parents=True)
    for name in ("nvidia3", "nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    environ = {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_VISIBLE_DEVICES": "0,3",
        "NVIDIA_REQUIRE_CUDA": "cuda>=13.0",
        "NVIDIA_REQUIRE_ARCH": "arch>=7.5",
        "NVIDIA_DISABLE_REQUIRE": "true",
        "LD_LIBRARY_PATH": "/usr/local/cuda/compat:/usr/local/nvidia/lib64:/opt/compatible",
    }
    found = probe_container(environ, tmp_path)
    assert isinstance(found.shared_memory_bytes, int)
    assert replace(found, runtime="docker", shared_memory_bytes=0) == container(
        capabilities=("compute", "utility"),
        visible_devices="0,3",
        requirements={"NVIDIA_REQUIRE_ARCH": "arch>=7.5", "NVIDIA_REQUIRE_CUDA": "cuda>=13.0"},
        is_requirement_disabled=True,
        compat_folders=("/usr/local/cuda/compat",),
        device_minors=(0, 3),
        shared_memory_bytes=0,
    )


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        ("", True),
        ("cuda>=13.1", False),
        ("cuda=13.0.0", True),
        ("cuda!=13.0", False),
        ("brand=geforce", False),
        ("brand!=geforce", True),
        ("brand<geforce", None),
        ("arch>=7.5", True),
        ("driver>580.82 cuda>=99", True),
        ("driver<=580.159.04", True),
        ("nonsense", None),
        ("cuda>=latest", None),
        (OF_CUDA_13, True),
    ],
)
def test_a_requirement_is_evaluated(requirement: str, met: bool | None) -> None:  # noqa: FBT001
    """Each comparison of each fact is evaluated; a condition that cannot be read is neither met nor failed."""
    assert evaluate(requirement, HOST) is met


def test_what_is_unknown_of_the_host_is_unknown_of_the_requirement() -> None:
    """Conditions about an unknown driver version or brand are undecided."""
    assert evaluate("driver>=470", {}) is None
    assert evaluate("cuda>=99 brand=tesla", HOST | {"brand": ""}) is None


CONDITIONS = st.sampled_from(
    ["cuda>=12", "cuda>=14", "brand=tesla", "brand=quadro", "arch>=7.5", "who=knows", "driver<1"]
)


@given(st.lists(st.lists(CONDITIONS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_requirement_is_an_or_of_ands(alternatives: list[list[str]]) -> None:
    """A space means or and a comma means and, both with three values."""
    order = {False: 0, None: 1, True: 2}
    expected = max(
        (min((evaluate(c, HOST) for c in a), key=order.__getitem__) for a in alternatives), key=order.__getitem__
    )
    assert evaluate(" ".join(",".join(conditions) for conditions in alternatives), HOST) is expected


@given(st.text(max_size=40))
def test_any_text_is_evaluated(requirement: str) -> None:
    """A requirement that cannot be read never raises."""
    assert evaluate(requirement, HOST) in {True, False, None}


def test_the_host_is_what_the_driver_was_made_for() -> None:
    """The CUDA version in conditions is that of the kernel driver, whatever compat package is in use."""
    assert host_facts(cuda(cuda_version="13.4"), "Tesla") == HOST
    assert set(host_facts(cuda(kernel_module=NO, devices=())).values()) == {""}
