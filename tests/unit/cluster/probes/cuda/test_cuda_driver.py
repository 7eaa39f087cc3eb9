import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from codecfleet.cluster.probes.cuda.ask import ask_nvrtc
from codecfleet.cluster.probes.cuda.driver import (
    compat_libraries,
    find_runtimes,
    kernel_module,
    linker_folders,
    probe_cuda,
)
from codecfleet.cluster.probes.cuda.report import (
    CudaLibrary,
    CudaReport,
    Deployment,
    ForwardNote,
    KernelModule,
    deployment,
)
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

from ...maybe import missing

LIMIT_S = 60
CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Apr  7 18:17:10 UTC 2026
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder@host)  Thu Jan 23
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
TEGRA = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (builder@host)\n"

FAKE_LIBCUDA = r"""
#include <stdlib.h>
#include <string.h>
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuInit(unsigned flags) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (INIT < 0) abort();
  return visible && !*visible ? 100 : INIT;  /* as measured with driver 580.159.04 */
}
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int bytes, int device) { strncpy(name, "NVIDIA H200", bytes); return 0; }
int cuDeviceGetPCIBusId(char *name, int bytes, int device) { strncpy(name, "0000:19:00.0", bytes); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0xab + device, 16); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (attribute == 103) return 1;
  *value = attribute == 75 ? 9 : attribute == 76 || attribute == 18 ? 0 : 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &fake; return device == 1 ? CONTEXT : 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 1000; *total = 2000; return 0; }
int cuGetExportTable(const void **table, const void *id) { return 999; }  /* NVRTC asks for its own */
int cuModuleLoadData(void **module, const void *image) { return memcmp(image, "\177ELF", 4) ? 200 : MODULE; }
int cuModuleUnload(void *module) { return 0; }
"""
FAKE_ENCODE = "int NvEncodeAPIGetMaxSupportedVersion(unsigned *version) { *version = 13 << 4; return 0; }"


def kernel_file(root: Path, text: str) -> None:
    """Write what the kernel driver reports about itself."""
    (root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
    (root / "proc/driver/nvidia/version").write_text(text)


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """Folders with libraries of a driver, made by the C compiler."""

    folder: Path

    def build(self, name: str, source: str) -> None:
        """Compile a library under its versioned name, and link the name that programs load to the library."""
        versioned = f"{name}.so.580.82.07"
        command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(self.folder / versioned)]
        subprocess.run([*command, f"-Wl,-soname,{name}.so.1"], input=source.encode(), check=True)
        (self.folder / f"{name}.so.1").symlink_to(versioned)

    def probe(self, **variables: str) -> CudaReport:
        root = self.folder.parent
        kernel_file(root, CLOSED.replace("580.159.04", "580.82.07"))
        return probe_cuda(LIMIT_S, root=root, environ={"LD_LIBRARY_PATH": str(self.folder), **variables})


def fake_driver(
    folder: Path, *, init: int = 0, context: int = 0, module: int = 0, source: str = FAKE_LIBCUDA
) -> FakeDriver:
    """Return a driver whose cuInit returns ``init``; below 0, it crashes.

    Creating a context on the second device returns ``context``, and loading a kernel returns ``module``.
    """
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    driver = FakeDriver(folder)
    constants = f"static int fake; enum {{ INIT = {init}, CONTEXT = {context}, MODULE = {module} }};"
    driver.build("libcuda", constants + source)
    driver.build("libnvidia-encode", FAKE_ENCODE)
    driver.build("libnvcuvid", "int cuvidCreateDecoder;")
    return driver


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A driver without faults, except that one codec library is missing."""
    return fake_driver(tmp_path_factory.mktemp("healthy") / "lib")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLOSED, KernelModule("580.159.04", is_open=False)),
        (OPEN, KernelModule("570.86.15", is_open=True)),
        (TEGRA, KernelModule("540.4.0", is_open=True)),
        (None, Absence.NOT_FOUND),
        ("", Absence.FAILED),
        ("NVRM version: ?", Absence.FAILED),
    ],
)
def test_the_kernel_driver_is_read(text: str | None, found: KernelModule | Absence, tmp_path: Path) -> None:
    """NVIDIA's kernel module writes its version and kind to a file; if the file is missing, no module is loaded."""
    if text is not None:
        kernel_file(tmp_path, text)
    module = kernel_module(tmp_path)
    assert (module.absence if isinstance(module, Unavailable) else module) == found


def test_compat_packages_on_the_disk_are_found_once(tmp_path: Path) -> None:
    """A toolkit folder and a link to it are one package, and the library's name gives the driver version."""
    folder = tmp_path / "usr/local/cuda-13.0/compat"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.580.65.06").write_bytes(b"")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    (found,) = compat_libraries(tmp_path)
    assert (found.version, found.in_compat_folder) == ("580.65.06", True)


def test_the_linkers_folders_are_read(tmp_path: Path) -> None:
    """The folders in ld.so.conf and in the files that it includes are found; comments are ignored."""
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n# /not\n")
    (tmp_path / "etc/ld.so.conf.d/00-compat.conf").write_text("/usr/local/cuda/compat\n")
    assert linker_folders(tmp_path) == ("/usr/local/cuda/compat",)


def loaded(path: str, *, in_compat_folder: bool, version: str | None = "590.44.01") -> CudaLibrary:
    """Return a library with a note."""
    absent = Unavailable(Absence.NOT_FOUND, "")
    note = ForwardNote("13.1", (580,))
    return CudaLibrary(path=path, version=version or absent, in_compat_folder=in_compat_folder, note=note)


COMPAT = loaded("/opt/cuda/compat/libcuda.so.590.44.01", in_compat_folder=True)
ELSEWHERE = loaded("/home/me/lib/libcuda.so.590.44.01", in_compat_folder=False)


@pytest.mark.parametrize(
    ("library", "environ", "folders", "how"),
    [
        (COMPAT, {"LD_LIBRARY_PATH": "/x:/opt/cuda/compat/"}, (), Deployment.SEARCH_PATH),
        (COMPAT, {"LD_LIBRARY_PATH": "/opt/cuda/compat", "LOADEDMODULES": "gcc/13:cuda/13.1"}, (), Deployment.MODULES),
        (COMPAT, {"LD_LIBRARY_PATH": "/opt/cuda/compat", "LOADEDMODULES": "gcc/13"}, (), Deployment.SEARCH_PATH),
        (COMPAT, {"LOADEDMODULES": "cuda/13.1"}, ("/opt/cuda/compat",), Deployment.LINKER),
        (COMPAT, {}, (), Deployment.RUN_PATH),
        (ELSEWHERE, {"LD_LIBRARY_PATH": "/home/me/lib"}, (), Deployment.SEARCH_PATH),
        (
            loaded("/usr/lib/libcuda.so.580.82.07", in_compat_folder=False, version="580.82.07"),
            {},
            (),
            Deployment.DRIVER,
        ),
        (loaded("/usr/lib/libcuda.so.1.1", in_compat_folder=False, version=None), {}, (), Deployment.DRIVER),
    ],
)
def test_the_deployment_of_a_library_is_recognised(
    library: CudaLibrary, environ: dict[str, str], folders: tuple[str, ...], how: Deployment
) -> None:
    """Each way to deploy a compat package is recognised, as is the driver's own library."""
    assert deployment(library, KernelModule("580.82.07", is_open=False), environ, folders) is how


def test_a_function_that_the_driver_lacks_is_an_absence(tmp_path: Path) -> None:
    """A function that the library lacks, and a function that fails, become absences with reasons."""
    source = FAKE_LIBCUDA.replace("cuDriverGetVersion", "other").replace("*count = 2; return 0", "return 100")
    report = fake_driver(tmp_path / "lib", source=source).probe()
    assert missing(report.cuda_version).absence is Absence.FUNCTION_NOT_FOUND
    assert "CUDA_ERROR_NO_DEVICE (100)" in missing(report.device_count).reason


def test_a_driver_is_asked_for_everything(healthy: FakeDriver) -> None:
    """The report has the versions, files, devices, attributes, contexts and memory of a working driver."""
    report = healthy.probe()
    library = report.library
    assert isinstance(library, CudaLibrary)
    assert (library.path, library.version) == (str(healthy.folder / "libcuda.so.580.82.07"), "580.82.07")
    assert (report.cuda_version, report.init_code, report.device_count, report.nvenc_api) == ("13.0", 0, 2, "13.0")
    assert report.codec_libraries["libnvcuvid.so.1"] == str(healthy.folder / "libnvcuvid.so.580.82.07")
    assert report.deployment is Deployment.DRIVER
    first, second = report.devices
    assert (first.name, first.compute_capability) == ("NVIDIA H200", "9.0")
    assert second.uuid == "acacacac-acac-acac-acac-acacacacacac"
    assert first.attributes["host_register_supported"] == 1
    assert isinstance(first.attributes["handle_type_posix_file_descriptor_supported"], Unavailable)
    assert (first.context_code, first.free_bytes) == (0, 1000)
    assert report.ended == ""


def test_hidden_devices_are_asked_for_on_request(healthy: FakeDriver) -> None:
    """An empty CUDA_VISIBLE_DEVICES hides all devices, unless the probe asks for every device."""
    environ = {"LD_LIBRARY_PATH": str(healthy.folder), "CUDA_VISIBLE_DEVICES": ""}
    hidden = healthy.probe(CUDA_VISIBLE_DEVICES="")
    assert hidden.init_code == 100
    assert "cuInit" in missing(hidden.device_count).reason
    assert probe_cuda(LIMIT_S, every_device=True, environ=environ).device_count == 2


def test_a_device_without_memory_is_a_code(tmp_path: Path) -> None:
    """Each device has the return code of its context's creation, with the rest of its report."""
    report = fake_driver(tmp_path / "lib", context=2).probe()
    assert [device.context_code for device in report.devices] == [0, 2]
    free = missing(report.devices[1].free_bytes)
    assert "no memory left" in free.reason


def test_a_driver_that_crashes_does_not_crash_us(tmp_path: Path) -> None:
    """After a crash in cuInit, the report has everything that was found before."""
    report = fake_driver(tmp_path / "lib", init=-1).probe()
    assert report.ended == "the process was killed by SIGABRT while cuInit"
    assert (report.nvenc_api, report.cuda_version, report.devices) == ("13.0", "13.0", ())
    assert isinstance(report.init_code, Unavailable)


def test_the_runtimes_in_use_have_versions() -> None:
    """Each installed runtime has a name and the CUDA version that it is for."""
    assert all(runtime.name and runtime.cuda_version.count(".") == 1 for runtime in find_runtimes())


def test_a_missing_compiler_of_kernels_is_an_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """If NVRTC is not found, the reason is the first line of the loader's message."""

    def load(_: str) -> None:
        raise RuntimeError('Failure finding "libnvrtc.so"\nnear here')

    monkeypatch.setitem(sys.modules, "cuda.pathfinder", SimpleNamespace(load_nvidia_dynamic_lib=load))
    reason = 'NVRTC cannot be loaded: Failure finding "libnvrtc.so"'
    assert list(ask_nvrtc()) == ["loading NVRTC", {"nvrtc": Unavailable(Absence.NO_LIBRARY, reason)}]


@pytest.mark.parametrize("code", [0, 222])
def test_a_kernel_is_compiled_for_each_device_and_loaded(code: int, tmp_path: Path) -> None:
    """NVRTC compiles a kernel for each device, and the report has the driver's return code for it."""
    report = fake_driver(tmp_path / "lib", module=code).probe()
    if isinstance(report.nvrtc, Unavailable):
        pytest.skip(report.nvrtc.reason)
    assert [device.kernel_code for device in report.devices] == [code, code]
