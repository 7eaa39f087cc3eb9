"""The environment that Ray gets: variables, and names that it can store."""

import os
import sys
from pathlib import Path

import pytest

from codecfleet.cluster.ray.ray_environment import (
    DEATH_KNOBS,
    cluster_variables,
    environment,
    is_utf8,
    plain_names,
    private_variables,
    submission_id,
    unreadable_settings,
)

BYTES = os.fsdecode(b"na\xffme")
DEATH_KNOB = "RAY_timeout_ms_task_wait_for_death_info"


def test_the_environment_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards, variables are as before, whether they were set, not set or removed."""
    monkeypatch.setenv("CF_TEST_SET", "before")
    monkeypatch.setenv("CF_TEST_GONE", "before")
    monkeypatch.delenv("CF_TEST_UNSET", raising=False)
    with environment({"CF_TEST_SET": "inside", "CF_TEST_UNSET": "inside", "CF_TEST_GONE": None}):
        assert os.environ["CF_TEST_SET"] == os.environ["CF_TEST_UNSET"] == "inside"
        assert "CF_TEST_GONE" not in os.environ
    assert os.environ["CF_TEST_SET"] == os.environ["CF_TEST_GONE"] == "before"
    assert "CF_TEST_UNSET" not in os.environ


@pytest.mark.parametrize(
    "name", ["RAY_USE_TLS", "RAY_OVERRIDE_RESOURCES", "RAY_ADDRESS", "PYTHONOPTIMIZE", "PYTHONWARNINGS"]
)
def test_a_private_ray_gets_no_settings_for_clusters(name: str) -> None:
    """Variables that would prevent the start of a private Ray are removed; ours and those of other programs stay."""
    found = private_variables({name: "1", "PATH": "/bin"}, {"RAY_AUTH_MODE": "token"})
    assert found == {name: None, "RAY_AUTH_MODE": "token", **DEATH_KNOBS}


@pytest.mark.parametrize(("given", "taken"), [("700", "700"), ("banana", "50"), ("-1", "50"), ("", "50")])
def test_a_knob_is_a_number(given: str, taken: str) -> None:
    """The user's value of a setting counts if it is a number, since other text would end the process."""
    around = {DEATH_KNOB: given}
    assert private_variables(around, {})[DEATH_KNOB] == cluster_variables(around)[DEATH_KNOB] == taken


def test_settings_that_ray_may_not_read_are_removed() -> None:
    """Numbers and booleans stay; settings of Ray with other text are removed."""
    around = {"RAY_a": "1", "RAY_b": "0.5", "RAY_c": "true", "RAY_d": "banana", "RAY_ADDRESS": "auto", "a": "b"}
    assert unreadable_settings(around) == {"RAY_d": None}


def test_a_program_of_another_encoding_is_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray gets another name for the program, which has its own name again afterwards."""
    main = sys.modules["__main__"]
    monkeypatch.setattr(sys, "argv", [BYTES, BYTES])
    monkeypatch.setattr(main, "__file__", BYTES, raising=False)
    with plain_names(tmp_path):
        assert is_utf8(sys.argv[0], str(main.__file__))
    assert (sys.argv, main.__file__) == ([BYTES, BYTES], BYTES)


@pytest.mark.parametrize("name", ["plain", BYTES])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_ray_has_a_working_directory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    is_deleted: bool,  # noqa: FBT001 - a table
) -> None:
    """If the working directory is deleted, or Ray cannot store its name, Ray gets another one during the block."""
    here, refuge = tmp_path / name, tmp_path / "refuge"
    here.mkdir()
    refuge.mkdir()
    monkeypatch.chdir(here)
    before = Path().stat()
    if is_deleted:
        here.rmdir()
    with plain_names(refuge):
        assert Path.cwd() == (here if name == "plain" and not is_deleted else refuge)
    assert Path().stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_1"}}', "raysubmit_1"),
        ('{"runtime_env": {}}', ""),
        ("[]", ""),
        ("no JSON", ""),
        (None, ""),
    ],
)
def test_a_driver_knows_the_ray_job_that_it_is(config: str | None, expected: str) -> None:
    """The driver of a Ray job knows the id of its submission; other configurations have none."""
    around = {} if config is None else {"RAY_JOB_CONFIG_JSON_ENV_VAR": config}
    assert submission_id(around) == expected
