from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.tegra.memory import (
    Allocatable,
    MemorySource,
    allocatable_bytes,
    allocatable_memory,
    device_allocated_from_clients,
    read_meminfo,
)

from ...maybe import missing

MIB = 1 << 20
NOT_ASKED = Unavailable(Absence.NOT_FOUND, "CUDA was not asked")
ORIN_MEMINFO = """MemTotal:        8192 kB
MemFree:         2048 kB
Active(anon):    1024 kB
SwapTotal:       4096 kB
SwapFree:        3072 kB
HugePages_Total:       0
NvMapMemUsed:    4096 kB
"""


def _allocatable(total: int, free: int, swap_free: int, device: int) -> int:
    return allocatable_bytes(total, free, swap_free_bytes=swap_free, device_allocated_bytes=device)


def _machine(root: Path, meminfo: str, clients: str | None = None) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(meminfo)
    if clients is not None:
        folder = root / "sys/kernel/debug/nvmap/iovmm"
        folder.mkdir(parents=True)
        (folder / "clients").write_text(clients)
    return root


SIZE = st.integers(0, 1 << 48)


@given(SIZE, SIZE, SIZE, SIZE)
def test_formula_never_leaves_the_machines_memory(total: int, free: int, swap_free: int, device: int) -> None:
    """With any counters, even contradictory ones, the result is between 0 and the whole memory."""
    assert 0 <= _allocatable(total, free, swap_free, device) <= total


@given(SIZE, SIZE, SIZE, st.integers(0, 1 << 40))
def test_formula_is_the_documents_for_counters_that_agree(host: int, device: int, free: int, swap_free: int) -> None:
    """For consistent counters, each case equals the document's formula, which the test repeats."""
    total = host + device + free
    expected = host + free if host < swap_free else device + free + swap_free
    assert _allocatable(total, free, swap_free, device) == expected


def test_meminfo_is_read_in_bytes() -> None:
    """Kilobytes become bytes, counts stay counts, and lines that are no fields are left out."""
    found = read_meminfo(ORIN_MEMINFO + "\nnonsense\nBroken: x kB\n")
    assert found["NvMapMemUsed"] == 4096 * 1024
    assert found["HugePages_Total"] == 0
    assert "Broken" not in found


@given(st.text())
def test_meminfo_and_clients_of_any_text_raise_nothing(text: str) -> None:
    """Files with other content are read as if they were empty."""
    assert all(value >= 0 for value in read_meminfo(text).values())
    assert (device_allocated_from_clients(text) or 1) > 0


def test_meminfo_with_nvmap_decides(tmp_path: Path) -> None:
    """On Orin, /proc/meminfo is enough: 8192 - 2048 - 4096 = 2048 kB fit into swap space, so the result is 4096 kB."""
    found = allocatable_memory(_machine(tmp_path, ORIN_MEMINFO), NOT_ASKED)
    assert found == Allocatable(4096 * 1024, MemorySource.MEMINFO)


def test_nvmap_clients_stand_in_for_meminfo(tmp_path: Path) -> None:
    """Without NvMapMemUsed, the total of the clients is the memory that the GPU holds."""
    meminfo = "".join(line for line in ORIN_MEMINFO.splitlines(keepends=True) if "NvMap" not in line)
    clients = "CLIENT  PROCESS  PID  SIZE\nuser  gst  1234  1024K\ntotal      2048K\n"
    assert device_allocated_from_clients(clients) == 2 * MIB
    found = allocatable_memory(_machine(tmp_path, meminfo, clients), NOT_ASKED)
    # 8192 - 2048 - 2048 = 4096 kB do not fit into 3072 kB of swap space.
    assert found == Allocatable((8192 - 1024) * 1024, MemorySource.NVMAP)


def test_thors_empty_counter_is_no_answer(tmp_path: Path) -> None:
    """Thor has no NvMapMemUsed, and its clients have 0K: what CUDA calls free is used, or there is a reason."""
    root = _machine(tmp_path, "MemTotal: 100 kB\nMemFree: 50 kB\n", "total 0K\n")
    assert allocatable_memory(root, 7 * MIB) == Allocatable(7 * MIB, MemorySource.CUDA)
    nothing = missing(allocatable_memory(root, NOT_ASKED))
    assert "CUDA was not asked" in nothing.reason


def test_qnx_counts_on_cuda_alone(tmp_path: Path) -> None:
    """QNX has no swap space, so CUDA's number is used, whatever the files contain."""
    assert allocatable_memory(_machine(tmp_path, ORIN_MEMINFO), 5 * MIB, qnx=True) == Allocatable(
        5 * MIB, MemorySource.CUDA
    )
