"""docs/dla.md against the code: every function, every call of NvMediaDla, every setting."""

import re
from pathlib import Path

import pytest

from codecfleet.actors.dla.engine import session
from codecfleet.actors.dla.engine.host import EXECUTION_MODE, DlaHost
from codecfleet.actors.dla.engine.session import DlaSession
from codecfleet.actors.dla.engine.states import EDGES, DlaSessionState
from codecfleet.actors.dla.engine.statuses import CudlaStatus, error_of
from codecfleet.actors.dla.engine.tasks import (
    Access,
    DlaModule,
    DlaTask,
    LoadOption,
    SubmitOption,
)
from codecfleet.actors.dla.engine.watchdog import TimeLimits
from codecfleet.actors.dla.inference.network import NetworkSettings
from codecfleet.actors.dla.inference.pictures import PixelRule

PAGE = (Path(__file__).parents[5] / "docs" / "dla.md").read_text(encoding="utf-8")
ENGINE = "".join(path.read_text(encoding="utf-8") for path in Path(str(session.__file__)).parent.glob("*.py"))

NAMED = {
    kind.__name__: kind
    for kind in (
        *(DlaHost, DlaModule, DlaSession, DlaTask, TimeLimits, NetworkSettings, PixelRule, Access),
        *(LoadOption, SubmitOption),
    )
}

STANDALONE = {"cudlaImportExternalMemory", "cudlaImportExternalSemaphore", "cudlaGetNvSciSyncAttributes"}
"""Functions of cuDLA's standalone mode, which is not built."""

NVMEDIA = [
    "GetVersion",
    "PingById",
    "Create",
    "Destroy",
    "GetUMDVersion",
    "GetNumEngines",
    "GetMaxOutstandingTasks",
    "Init",
    "GetInstanceId",
    "GetNumTasks",
    "LoadableCreate",
    "LoadableDestroy",
    "AppendLoadable",
    "SetCurrentLoadable",
    "GetNumOfInputTensors",
    "GetInputTensorDescriptor",
    "GetNumOfOutputTensors",
    "GetOutputTensorDescriptor",
    "DataRegister",
    "DataUnregister",
    "LoadLoadable",
    "RemoveLoadable",
    "Submit",
    "NvSciSyncGetVersion",
    "FillNvSciSyncAttrList",
    "RegisterNvSciSyncObj",
    "UnregisterNvSciSyncObj",
    "SetNvSciSyncObjforEOF",
    "InsertPreNvSciSyncFence",
    "GetEOFNvSciSyncFence",
]
"""The calls of CUDA for Tegra's table in 5.2."""


def rows(title: str) -> list[list[str]]:
    """Return the cells of a chapter's table, without its head."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    lines = [line for line in match[1].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def codes(cell: str) -> list[str]:
    """Return what a cell has in code."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_function_of_cudla_has_a_row() -> None:
    """The functions that our code calls are those of the table, and each leads to a name that exists."""
    said = {name: ours for names, _, ours in rows("Every function of cuDLA") for name in codes(names)}
    table = {name: codes(ours) for name, ours in said.items() if not ours.startswith("not built: ")}
    assert said.keys() - table.keys() == STANDALONE
    assert set(table) == set(re.findall(r'"(cudla[A-Z]\w+)"', ENGINE))
    for ours in table.values():
        assert ours
        for name in ours:
            _check(name)


def test_the_binding_s_names_are_the_binding_s() -> None:
    """The second column is what cuda.bindings.cudla calls it, or that it has none."""
    cudla = pytest.importorskip("cuda.bindings.cudla")
    for name, binding, _ in rows("Every function of cuDLA"):
        found = codes(binding)
        assert found or binding == "none", name
        assert all(callable(getattr(cudla, each)) for each in found), name


def test_every_call_of_nvmediadla_has_a_row() -> None:
    """All thirty calls, each once; what they became in cuDLA is a function of the other table."""
    table = [(call, cudla, ours) for calls, cudla, ours in rows("From NvMediaDla") for call in codes(calls)]
    assert sorted(call.removeprefix("NvMediaDla") for call, _, _ in table) == sorted(NVMEDIA)
    functions = {name for names, _, _ in rows("Every function of cuDLA") for name in codes(names)}
    for call, cudla, ours in table:
        assert set(codes(cudla)) <= functions, call
        assert codes(ours) or ours == "none" or ours.startswith("not built: "), call
        for name in codes(ours):
            _check(name)


def test_every_setting_is_described() -> None:
    """Every field and member that can be set is in the table, and nothing that cannot."""
    described = [name for row in rows("Settings") for name in codes(row[0])]
    wanted = {f"TimeLimits.{name}" for name in TimeLimits.__dataclass_fields__}
    for flags in (LoadOption, SubmitOption, Access):
        wanted |= {f"{flags.__name__}.{member.name}" for member in flags if member.name != "NONE"}
    wanted |= {"Access.READ_WRITE", "NetworkSettings.tasks_at_once", "NetworkSettings.task_limit_s"}
    wanted |= {f"PixelRule.{name}" for name in PixelRule.__dataclass_fields__}
    assert set(described) == wanted | {EXECUTION_MODE, "CUDLA_NVTX_LEVEL"}
    assert len(described) == len(set(described))


def test_the_states_and_ways_are_the_code_s() -> None:
    """Every state has a row, and every way that a row names is an edge."""
    table = {codes(state)[0]: ways for state, _, ways in rows("The life of a session")}
    assert set(table) == {state.value for state in DlaSessionState}
    edges = {(start.value, target.value) for (start, _), target in EDGES.items()}
    for state, ways in table.items():
        for target in re.findall(r"-> `(\w+)`", ways):
            assert (state, target) in edges


def test_the_errors_are_the_code_s() -> None:
    """What the table says of a status is what becomes of it."""
    table = {name: codes(error)[0] for said, error, _ in rows("What goes wrong") for name in codes(said)}
    for name, error in table.items():
        if name in CudlaStatus.__members__:
            assert type(error_of("call", CudlaStatus[name], 0)).__name__ == error
    assert {"MEMORY_REGISTERED", "INVALID_MODULE", "DLA_ENGINE_TIMEOUT"} <= set(table)


def _check(name: str) -> None:
    kind, _, member = name.partition(".")
    assert kind in NAMED, name
    assert not member or hasattr(NAMED[kind], member) or member in NAMED[kind].__annotations__, name
