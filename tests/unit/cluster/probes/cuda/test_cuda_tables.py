import importlib
import json
from pathlib import Path

import pytest

from codecfleet.cluster.probes.cuda.runtime import minimum_driver
from codecfleet.cluster.probes.cuda.tables import (
    BRANCH_CUDA,
    CUDA_ERRORS,
    TOOLKIT_DRIVERS,
    Forward,
    forward_by_table,
    newest_cuda_of,
    version_numbers,
)

MATRIX = Path(__file__).resolve().parents[5].parent / "shared" / "data" / "hw_matrix.json"


@pytest.mark.parametrize(
    ("text", "numbers"), [("580.159.04", (580, 159, 4)), ("13.4.1rc1", (13, 4)), ("", ()), ("x", ())]
)
def test_a_version_ends_at_the_first_part_that_is_not_a_number(text: str, numbers: tuple[int, ...]) -> None:
    """Versions are compared by numbers: other endings are left out, and leading zeros do not count."""
    assert version_numbers(text) == numbers


def test_a_driver_was_made_for_a_cuda_version() -> None:
    """The CUDA version of a driver is the newest that appeared with its branch or an earlier one."""
    newest = {"580.159.04": "13.0", "615.31": "13.4", "999.1": "13.4", "565.57.01": "12.6", "390.1": ""}
    assert {driver: newest_cuda_of(driver) for driver in newest} == newest


@pytest.mark.parametrize(
    ("cuda", "branch", "answer"),
    [
        ("13.4", 535, Forward.WORKS),
        ("13.4", 615, Forward.NOT_NEEDED),
        ("13.3", 615, Forward.NOT_SUPPORTED),
        ("12.8", 570, Forward.NOT_NEEDED),
        ("12.9", 580, Forward.NOT_SUPPORTED),
        ("12.4", 470, Forward.WORKS),
        ("12.4", 550, Forward.NOT_NEEDED),
        ("12.3", 550, Forward.NOT_SUPPORTED),
        ("11.4", 470, Forward.NOT_NEEDED),
        ("13.0", 495, Forward.NOT_SUPPORTED),
        ("13.0", 560, Forward.NOT_SUPPORTED),
        ("14.0", 580, None),
    ],
)
def test_the_matrix_of_packages_and_drivers(cuda: str, branch: int, answer: Forward | None) -> None:
    """The document's matrix decides; the rules decide for pairs that it lacks, or the answer is None."""
    assert forward_by_table(cuda, branch) is answer


@pytest.mark.skipif(not MATRIX.is_file(), reason=f"there is no {MATRIX}")
def test_the_tables_agree_with_the_collected_ones() -> None:
    """The matrix, the minimum drivers and the toolkits' drivers are those collected from NVIDIA's pages."""
    collected = json.loads(MATRIX.read_text())["cuda"]
    words = {"C": Forward.WORKS, "X": Forward.NOT_SUPPORTED, "NA": Forward.NOT_NEEDED}
    forward = collected["forward_compat"]
    for cuda, row in forward["rows"].items():
        for branch, word in zip(forward["columns_driver_branch"], row, strict=True):
            assert forward_by_table(cuda, int(branch)) is words[word], (cuda, branch)
    for major in ("11", "12", "13"):
        assert minimum_driver(f"{major}.1") == collected["minor_version"][major]["min"]
    for cuda, branch in collected["toolkit_driver_branch"].items():
        if cuda != "source":
            assert BRANCH_CUDA[int(branch.removeprefix("R"))] == cuda
    for cuda, driver in collected["toolkit_linux_driver"].items():
        assert TOOLKIT_DRIVERS[".".join(cuda.split(".")[:2])].split(".")[0] == driver.split(".")[0]


def test_the_minimum_driver_of_a_toolkit() -> None:
    """Before CUDA 11 every toolkit has its own minimum driver; later, every major version has one."""
    least = {"9.2": "", "10.1": "418.39", "10.2": "440.33", "11.0": "450.80.02", "12.9": "525.60.13"}
    assert {cuda: minimum_driver(cuda) for cuda in least} == least


def test_the_error_codes_have_the_names_that_cuda_gives_them() -> None:
    """The codes and names are those of the installed binding, if there is one."""
    driver = pytest.importorskip("cuda.bindings.driver")
    runtime = importlib.import_module("cuda.bindings.runtime")
    for code, error in CUDA_ERRORS.items():
        names = driver.CUresult if error.name.startswith("CUDA_") else runtime.cudaError_t
        assert names(code).name == error.name
