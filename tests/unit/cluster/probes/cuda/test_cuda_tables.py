import importlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.runtime import minimum_driver
from codecfleet.cluster.probes.cuda.tables import (
    BRANCH_CUDA,
    CUDA_ERRORS,
    TOOLKIT_DRIVERS,
    Forward,
    forward_by_table,
    generation_of,
    newest_cuda_of,
    version_numbers,
)

MATRIX = Path(__file__).resolve().parents[5].parent / "shared" / "data" / "hw_matrix.json"


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=4))
def test_a_version_is_its_numbers(numbers: list[int]) -> None:
    """Versions compare by number, not by text."""
    assert version_numbers(".".join(map(str, numbers))) == tuple(numbers)


@pytest.mark.parametrize(
    ("text", "numbers"), [("580.159.04", (580, 159, 4)), ("13.4.1rc1", (13, 4)), ("", ()), ("x", ())]
)
def test_a_version_ends_at_the_first_part_that_is_not_a_number(text: str, numbers: tuple[int, ...]) -> None:
    """Endings that are not numbers are left out, and leading zeros count for nothing."""
    assert version_numbers(text) == numbers


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.159.04", "13.0"),
        ("615.31", "13.4"),
        ("999.1", "13.4"),
        ("565.57.01", "12.6"),
        ("470.57.02", "11.4"),
        ("390.1", ""),
    ],
)
def test_a_driver_was_made_for_a_cuda_version(driver: str, cuda: str) -> None:
    """Every driver has the newest CUDA version that came with its branch or before it."""
    assert newest_cuda_of(driver) == cuda


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
    """The document's matrix answers, its rules where it has no cell, and nothing where neither knows."""
    assert forward_by_table(cuda, branch) is answer


@pytest.mark.skipif(not MATRIX.is_file(), reason=f"there is no {MATRIX}")
def test_the_tables_agree_with_the_collected_ones() -> None:
    """Forward matrix, minimum drivers and toolkits' drivers are those collected from NVIDIA's pages."""
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


@pytest.mark.parametrize(
    ("cuda", "linux"),
    [
        ("10.0", "410.48"),
        ("10.1", "418.39"),
        ("10.2", "440.33"),
        ("11.0", "450.80.02"),
        ("12.9", "525.60.13"),
        ("9.2", ""),
    ],
)
def test_the_minimum_driver_of_a_toolkit(cuda: str, linux: str) -> None:
    """Before CUDA 11 every toolkit has its own minimum, from then on every major version."""
    assert minimum_driver(cuda) == linux


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ("5.0", "Maxwell"),
        ("7.2", "Volta"),
        ("7.5", "Turing"),
        ("8.9", "Ampere"),
        ("9.0", "Hopper"),
        ("12.0", "Blackwell"),
    ],
)
def test_the_generation_of_a_compute_capability(capability: str, name: str) -> None:
    """Each compute capability belongs to the newest generation that it reaches."""
    generation = generation_of(capability)
    assert generation is not None
    assert generation.name == name


def test_the_error_codes_have_the_names_that_cuda_gives_them() -> None:
    """Numbers and names are those of the installed binding, where one is installed."""
    driver = pytest.importorskip("cuda.bindings.driver")
    runtime = importlib.import_module("cuda.bindings.runtime")
    for code, error in CUDA_ERRORS.items():
        names = driver.CUresult if error.name.startswith("CUDA_") else runtime.cudaError_t
        assert names(code).name == error.name
