"""The images' recipe, read: no container engine is needed. What is pinned, who runs it, what it runs."""

import json
import re
import shlex
from pathlib import Path

import pytest

Stage = list[tuple[str, str]]
"""Instructions with their arguments."""


@pytest.fixture(scope="module")
def recipe(deploy: Path) -> Stage:
    """The Dockerfile's instructions, with continued lines joined."""
    text = (deploy / "docker" / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


@pytest.fixture(scope="module")
def stages(recipe: Stage) -> dict[str, Stage]:
    """Each stage's instructions, after those of the stage that it builds on."""
    made: dict[str, Stage] = {}
    name = ""
    for instruction, arguments in recipe:
        if instruction == "FROM":
            base, _, name = arguments.split()
            made[name] = list(made.get(base, []))
        elif name:
            made[name].append((instruction, arguments))
    return made


def environment(stage: Stage) -> dict[str, str]:
    """Return the variables that a stage has set."""
    words = [word for instruction, arguments in stage if instruction == "ENV" for word in shlex.split(arguments)]
    return dict(word.split("=", 1) for word in words)


def test_every_stage_begins_with_one_exact_base(recipe: Stage) -> None:
    """The base's tag names Python to its patch and Debian's release, and no registry; other stages build on it."""
    bases = [arguments.split()[0] for instruction, arguments in recipe if instruction == "FROM"]
    names = [arguments.split()[2] for instruction, arguments in recipe if instruction == "FROM"]
    assert set(bases) <= {"${BASE}", *names}
    (base,) = [arguments for instruction, arguments in recipe if instruction == "ARG"]
    assert re.fullmatch(r"BASE=python:3\.(11|12|13)\.\d+-slim-[a-z]+", base)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_is_unprivileged_and_knows_its_health(target: str, stages: dict[str, Stage]) -> None:
    """The image's user is not root, and `codecfleet doctor` decides the container's health."""
    settings = dict(stages[target])  # the last of each instruction counts
    assert settings["USER"] == "1000:1000"
    assert json.loads(settings["HEALTHCHECK"].partition("CMD ")[2]) == ["codecfleet", "doctor"]
    assert json.loads(settings["ENTRYPOINT"]) == ["codecfleet"]
    assert environment(stages[target])["XDG_CACHE_HOME"].startswith("/tmp/")  # noqa: S108 - of the container


def test_only_the_image_for_gpus_asks_for_them(stages: dict[str, Stage]) -> None:
    """Only the image for GPUs names capabilities; without `video`, a container has no libraries of NVENC and NVDEC."""
    assert environment(stages["gpu"])["NVIDIA_DRIVER_CAPABILITIES"] == "compute,video,utility"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(stages["cpu"])


def test_packages_come_locked_or_from_the_wheel(recipe: Stage) -> None:
    """Packages are hashed in a lock file, or are the wheel that was built here; apt installs nothing."""
    runs = [arguments for instruction, arguments in recipe if instruction == "RUN"]
    installs = [run for run in runs if "install" in run]
    assert len(installs) == 4
    for run in installs:
        assert "--require-hashes --no-deps -r /tmp/" in run or "--no-index --no-deps /tmp/*.whl" in run
    assert not [run for run in runs if "apt" in run or "http" in run]


def pins(lock: Path) -> dict[str, str]:
    """Return a lock file's pins, each with its hashes; packages that only other systems need are left out."""
    blocks = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
    named = {block.split()[0]: block.partition("\n")[2] for block in blocks}
    return {name: hashes for name, hashes in named.items() if not name.startswith("colorama==")}


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("deploy/cpu.lock", "requirements.lock"),
        ("deploy/gpu.lock", "requirements-nvidia.lock"),
        ("deploy/ray-up/aws.lock", "requirements.lock"),
    ],
)
def test_deployed_packages_are_the_tested_ones(part: str, whole: str, repository: Path) -> None:
    """Versions and hashes equal those of the lock file that the tests run with; no tool of the tests is deployed."""
    deployed, tested = pins(repository / part), pins(repository / whole)
    assert deployed.items() <= tested.items()
    assert deployed
    assert not [name for name in deployed if name.startswith(("pytest", "ruff", "mypy", "moto", "hypothesis"))]


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_lock_file_has_all_that_the_product_needs(name: str, repository: Path) -> None:
    """Each dependency of the project is pinned; only the image for GPUs has NVIDIA's packages."""
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["s3"], *extras["postgres"]]
    nvidia = extras["nvidia"]
    pinned = {pin.partition("==")[0] for pin in pins(repository / "deploy" / f"{name}.lock")}

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=]", each)[0].lower() for each in requirements}

    assert names(needed) <= pinned
    assert names(nvidia) & pinned == (names(nvidia) if name == "gpu" else set())
