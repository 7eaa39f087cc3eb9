"""Compares docs/dla.md with the code, and docs/nvidia/tegra.md with the functions that the code calls."""

import re
from pathlib import Path

from codecfleet.actors.dla.engine import session
from codecfleet.actors.dla.engine.host import EXECUTION_MODE
from codecfleet.actors.dla.engine.statuses import CudlaStatus, error_of
from codecfleet.actors.dla.engine.tasks import Access, LoadOption, SubmitOption
from codecfleet.actors.dla.engine.watchdog import TimeLimits
from codecfleet.actors.dla.inference.network import NetworkSettings
from codecfleet.actors.dla.inference.pictures import PixelRule

PAGE = (Path(__file__).parents[5] / "docs" / "dla.md").read_text(encoding="utf-8")
TEGRA = (Path(__file__).parents[5] / "docs" / "nvidia" / "tegra.md").read_text(encoding="utf-8")
ENGINE = "".join(path.read_text(encoding="utf-8") for path in Path(str(session.__file__)).parent.glob("*.py"))


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table in a chapter, without its head."""
    match = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    lines = [line for line in match[1].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def codes(cell: str) -> list[str]:
    """Return the parts of a cell that are marked as code."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_function_that_is_called_has_a_row() -> None:
    """docs/nvidia/tegra.md lists each function of cuDLA that our code calls."""
    called = set(re.findall(r'"(cudla[A-Z]\w+)"', ENGINE))
    assert {"cudlaSubmitTask", "cudlaImportExternalMemory"} <= called
    assert called - {"cudlaDeviceGetAttribute", "cudlaSetTaskTimeoutInMs"} <= set(re.findall(r"\w+", TEGRA))


def test_every_setting_is_described() -> None:
    """The table has every field and member that can be set, and no others."""
    described = [name for row in rows("Settings") for name in codes(row[0])]
    wanted = {f"TimeLimits.{name}" for name in TimeLimits.__dataclass_fields__}
    for flags in (LoadOption, SubmitOption, Access):
        wanted |= {f"{flags.__name__}.{member.name}" for member in flags if member.name != "NONE"}
    wanted |= {"Access.READ_WRITE", "Timing.waiting"}
    wanted |= {f"NetworkSettings.{name}" for name in NetworkSettings.__dataclass_fields__ if name != "loadable"}
    wanted |= {f"PixelRule.{name}" for name in PixelRule.__dataclass_fields__}
    assert set(described) == wanted | {EXECUTION_MODE, "CUDLA_NVTX_LEVEL"}
    assert len(described) == len(set(described))


def test_the_errors_are_the_code_s() -> None:
    """Each status in the table becomes the error that the table names."""
    table = {name: codes(error)[0] for said, error, _ in rows("What goes wrong") for name in codes(said)}
    for name, error in table.items():
        if name in CudlaStatus.__members__:
            assert type(error_of("call", CudlaStatus[name], 0)).__name__ == error
    assert {"MEMORY_REGISTERED", "INVALID_MODULE", "DLA_ENGINE_TIMEOUT"} <= set(table)
