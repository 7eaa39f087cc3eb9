from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.report import CudaDevice, CudaLibrary, CudaReport, Deployment, KernelModule
from codecfleet.cluster.probes.node.container import (
    ContainerReport,
    evaluate,
    host_facts,
    judge_container,
    probe_container,
)
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.verdict import Diagnosis, Grade

NO = Unavailable(Absence.NO_LIBRARY, "it is not here")
CODECS = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.1", "libnvidia-encode.so.1": "/usr/lib/libnvidia-encode.so.1"}
HOST = {"driver": "580.159.04", "cuda": "13.0", "brand": "tesla", "arch": "9.0"}
OF_CUDA_13 = "cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=570,driver<571"


def cuda(*, driver: str = "580.159.04", name: str = "NVIDIA H200", **changes: object) -> CudaReport:
    """Return a container in which the driver is all there, but for ``changes``."""
    library = CudaLibrary(path=f"/usr/lib/libcuda.so.{driver}", version=driver, in_compat_folder=False, note=NO)
    device = CudaDevice(
        ordinal=0,
        uuid="0",
        pci_bus_id="0000:19:00.0",
        name=name,
        compute_capability="9.0",
        is_integrated=False,
        attributes={},
        context_code=0,
        free_bytes=1,
        total_bytes=1,
    )
    found = CudaReport(
        kernel_module=KernelModule(driver, is_open=False),
        library=library,
        deployment=Deployment.DRIVER,
        compat_libraries=(),
        cuda_version="13.0",
        init_code=0,
        device_count=1,
        devices=(device,),
        codec_libraries=dict(CODECS),
        nvenc_api="13.0",
        runtimes=(),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def container(**changes: object) -> ContainerReport:
    """Return a container that was given everything, but for ``changes``."""
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


def verdict_on(subject: str, verdicts: tuple[Diagnosis, ...]) -> Diagnosis:
    """Return the one verdict on that subject."""
    (verdict,) = [verdict for verdict in verdicts if verdict.subject == subject]
    return verdict


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
    """Each runtime leaves its mark in a file or a variable."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert probe_container(environ, tmp_path).runtime == runtime


def test_a_plain_machine_is_no_container(tmp_path: Path) -> None:
    """Without any mark there is no container, no variable is set, and nothing is judged."""
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
    assert found.capabilities == ("compute", "utility")
    assert found.visible_devices == "0,3"
    assert found.requirements == {"NVIDIA_REQUIRE_ARCH": "arch>=7.5", "NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}
    assert found.is_requirement_disabled
    assert found.compat_folders == ("/usr/local/cuda/compat",)
    assert found.device_minors == (0, 3)
    assert isinstance(found.shared_memory_bytes, int)


def test_this_machine_is_reported() -> None:
    """The probe answers on any machine, and its verdicts are in order."""
    found = probe_container()
    for verdict in judge_container(found, cuda()):
        assert verdict.rule
        assert verdict.because


def test_a_container_that_has_everything_is_all_right() -> None:
    """With all GPUs, the video capability and enough shared memory there is nothing to fix."""
    verdicts = judge_container(container(requirements={"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}), cuda(), "tesla")
    assert {verdict.state for verdict in verdicts} == {Grade.OK}


@pytest.mark.parametrize(
    ("capabilities", "codecs", "state", "words"),
    [
        (("compute", "graphics", "utility"), CODECS, Grade.OK, "all the same"),  # as measured on a real H200
        (("all",), CODECS, Grade.OK, "it is all"),
        (None, CODECS, Grade.OK, "not set"),
        (("compute", "utility"), {**CODECS, "libnvcuvid.so.1": NO}, Grade.BROKEN, "without video"),
        (None, {**CODECS, "libnvcuvid.so.1": NO}, Grade.BROKEN, "not set"),
        (("video",), {**CODECS, "libnvidia-encode.so.1": NO}, Grade.BROKEN, "but libnvidia-encode.so.1"),
    ],
)
def test_whether_the_libraries_load_decides_about_capabilities(
    capabilities: tuple[str, ...] | None, codecs: dict[str, str | Unavailable], state: Grade, words: str
) -> None:
    """A variable without video is not a fault where the codec libraries are there, and the cause where they are not."""
    verdicts = judge_container(container(capabilities=capabilities), cuda(codec_libraries=codecs))
    verdict = verdict_on("NVIDIA_DRIVER_CAPABILITIES", verdicts)
    assert verdict.state is state
    assert words in verdict.because
    if state is Grade.BROKEN and capabilities != ("video",):
        assert "compute,utility,video" in verdict.fix


def test_a_container_without_gpus_is_not_broken() -> None:
    """On a machine without a driver nothing is broken, even in an image that asks for all GPUs."""
    absent = cuda(kernel_module=NO, library=NO, init_code=NO, devices=())
    for visible in (None, "all", "void"):
        verdicts = judge_container(container(device_minors=(), visible_devices=visible), absent)
        assert all(verdict.state in {Grade.OK, Grade.UNKNOWN} for verdict in verdicts)
        assert bool(verdicts) == (visible is not None)


@pytest.mark.parametrize(("size", "is_small"), [(64 << 20, True), (128 << 20, False), (NO, False)])
def test_small_shared_memory_is_a_limit(size: int | Unavailable, is_small: bool) -> None:  # noqa: FBT001
    """Docker's 64 MiB of shared memory are too little for Ray's objects."""
    verdicts = judge_container(container(shared_memory_bytes=size), cuda())
    assert any(verdict.state is Grade.LIMITED and "--shm-size" in verdict.fix for verdict in verdicts) == is_small


@pytest.mark.parametrize(
    ("visible", "minors", "driver", "name", "state"),
    [
        ("GPU-1", (2,), "580.82.09", "NVIDIA GeForce RTX 4090", Grade.LIMITED),
        ("GPU-1", (2,), "580.82.09", "NVIDIA H200", Grade.UNKNOWN),
        ("GPU-1", (0,), "580.82.09", "NVIDIA GeForce RTX 4090", Grade.LIMITED),
        (None, (1, 2), "570.86.15", "NVIDIA GeForce RTX 4080", Grade.LIMITED),
        ("all", (0, 1), "580.82.09", "NVIDIA GeForce RTX 4090", None),
        ("GPU-1", (2,), "550.54.15", "NVIDIA GeForce RTX 4090", None),
        ("GPU-1", (), "580.82.09", "NVIDIA GeForce RTX 4090", None),
    ],
)
def test_some_of_the_gpus_on_two_branches_is_a_warning(
    visible: str | None, minors: tuple[int, ...], driver: str, name: str, state: Grade | None
) -> None:
    """Only where a container sees some of the GPUs on R570 or R580 is there a warning; surest on GeForce cards."""
    verdicts = judge_container(container(visible_devices=visible, device_minors=minors), cuda(driver=driver, name=name))
    found = [verdict.state for verdict in verdicts if verdict.subject == "part of the host's GPUs"]
    assert found == ([] if state is None else [state])


@pytest.mark.parametrize(("code", "state"), [(0, Grade.OK), (803, Grade.BROKEN)])
def test_a_compat_package_on_the_path_is_named(code: int, state: Grade) -> None:
    """A compat package that an image put into LD_LIBRARY_PATH is all right where it initialises."""
    library = CudaLibrary(path="/usr/local/cuda/compat/libcuda.so.590.1", version=NO, in_compat_folder=True, note=NO)
    inside = container(compat_folders=("/usr/local/cuda/compat",))
    verdict = verdict_on(
        "compat package in LD_LIBRARY_PATH", judge_container(inside, cuda(library=library, init_code=code))
    )
    assert verdict.state is state
    unused = verdict_on("compat package in LD_LIBRARY_PATH", judge_container(inside, cuda()))
    assert "all the same" in unused.because


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        ("", True),
        ("cuda>=12.4", True),
        ("cuda>=13.1", False),
        ("cuda=13.0.0", True),
        ("cuda!=13.0", False),
        ("cuda>=13.1 driver>=580", True),
        ("cuda>=13.1 brand=tesla,driver>=570,driver<571", False),
        ("cuda>=13.1 brand=tesla,driver>=580,driver<581", True),
        ("brand=geforce", False),
        ("brand!=geforce", True),
        ("brand<geforce", None),
        ("arch>=7.5", True),
        ("arch<7.5", False),
        ("driver>580.82 cuda>=99", True),
        ("driver<=580.159.04", True),
        ("planet=earth", None),
        ("cuda>=13.1 planet=earth", None),
        ("cuda>=13.1,planet=earth", False),
        ("nonsense", None),
        ("cuda>=latest", None),
        (OF_CUDA_13, True),
    ],
)
def test_a_requirement_is_evaluated(requirement: str, met: bool | None) -> None:  # noqa: FBT001
    """A space is or, a comma is and, and what cannot be known is neither met nor failed."""
    assert evaluate(requirement, HOST) is met


def test_what_is_unknown_of_the_host_is_unknown_of_the_requirement() -> None:
    """Without a driver version or brand nothing about them is decided."""
    assert evaluate("driver>=470", {}) is None
    assert evaluate("cuda>=99 brand=tesla", HOST | {"brand": ""}) is None


CONDITIONS = st.sampled_from(
    ["cuda>=12", "cuda>=14", "brand=tesla", "brand=quadro", "arch>=7.5", "who=knows", "driver<1"]
)


@given(st.lists(st.lists(CONDITIONS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_requirement_is_an_or_of_ands(alternatives: list[list[str]]) -> None:
    """The whole is what three-valued or and and make of the single conditions."""
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
    """The CUDA version that counts is the kernel driver's, whatever compat package is in use."""
    found = host_facts(cuda(cuda_version="13.4"), "Tesla")
    assert found == HOST
    assert host_facts(cuda(kernel_module=NO, devices=())) == {"driver": "", "cuda": "", "brand": "", "arch": ""}


@pytest.mark.parametrize(
    ("text", "state"), [("cuda>=13.0", Grade.OK), ("cuda>=99", Grade.LIMITED), ("brand=tesla", Grade.UNKNOWN)]
)
def test_each_requirement_gets_a_verdict(text: str, state: Grade) -> None:
    """What the host does not meet is a limit, with the driver it has."""
    inside = container(requirements={"NVIDIA_REQUIRE_CUDA": text}, is_requirement_disabled=True)
    verdict = verdict_on("NVIDIA_REQUIRE_CUDA", judge_container(inside, cuda()))
    assert verdict.state is state
    if state is Grade.LIMITED:
        assert "580.159.04" in verdict.because
        assert "NVIDIA_DISABLE_REQUIRE" in verdict.because
        assert verdict.fix == "use an image for CUDA 13.0 or older, or install a newer driver on the host"
    if state is Grade.UNKNOWN:
        assert verdict.because == "what it depends on cannot be checked here: brand=tesla"
        assert verdict.limits == ("the image's requirement is not checked",)


@pytest.mark.parametrize(("brand", "state"), [("tesla", Grade.OK), ("geforcertx", Grade.LIMITED)])
def test_a_requirement_about_the_brand_is_decided(brand: str, state: Grade) -> None:
    """Where NVML told the brand, a clause about it is met or not."""
    inside = container(requirements={"NVIDIA_REQUIRE_CUDA": "brand=tesla,driver>=580"})
    verdict = verdict_on("NVIDIA_REQUIRE_CUDA", judge_container(inside, cuda(), brand))
    assert verdict.state is state


GIVE_VIDEO = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"


@pytest.mark.parametrize(
    ("inside", "driver", "subject", "fix"),
    [
        (container(shared_memory_bytes=64 << 20), cuda(), "shared memory", "start the container with --shm-size=2g"),
        (
            container(visible_devices="void", device_minors=()),
            cuda(init_code=100),
            "NVIDIA_VISIBLE_DEVICES",
            "--gpus all -e NVIDIA_VISIBLE_DEVICES=all",
        ),
        (
            container(visible_devices="GPU-1", device_minors=()),
            cuda(init_code=100),
            "NVIDIA_VISIBLE_DEVICES",
            "run it with NVIDIA's container runtime (--gpus all, or --runtime=nvidia)",
        ),
        (
            container(capabilities=("compute", "utility")),
            cuda(codec_libraries={"libnvcuvid.so.1": NO}),
            "NVIDIA_DRIVER_CAPABILITIES",
            GIVE_VIDEO,
        ),
        (
            container(),
            cuda(codec_libraries={"libnvcuvid.so.1": NO}),
            "NVIDIA_DRIVER_CAPABILITIES",
            "install the driver's decode and encode libraries on the host",
        ),
        (
            container(visible_devices="GPU-1"),
            cuda(name="NVIDIA GeForce RTX 4090"),
            "part of the host's GPUs",
            "give the container all GPUs (--gpus all) and narrow CUDA_VISIBLE_DEVICES",
        ),
    ],
)
def test_each_trap_of_a_container_says_how_to_start_it(
    inside: ContainerReport, driver: CudaReport, subject: str, fix: str
) -> None:
    """A container is fixed from outside, by how it is started: the option is in the words."""
    assert fix in verdict_on(subject, judge_container(inside, driver)).fix
