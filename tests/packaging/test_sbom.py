"""The bill of materials: what a wheel brings, as the lock files pin it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .sbom import LOCKS, bill, locked


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a wheel's name."""
    path = tmp_path_factory.mktemp("dist") / "codecfleet-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


@pytest.fixture(scope="module")
def document(wheel_file: Path) -> dict[str, Any]:
    """The bill of that wheel."""
    return bill(wheel_file)


def test_everything_is_pinned_and_hashed(document: dict[str, Any], repository: Path) -> None:
    """Each component but FFmpeg is in a lock file, in its version, with all of its hashes."""
    pins = {**locked(repository / LOCKS[1]), **locked(repository / LOCKS[0])}
    *packages, ffmpeg = document["components"]
    assert ffmpeg["name"] == "ffmpeg"
    for each in packages:
        pin = pins[each["name"]]
        assert (each["version"], each["purl"]) == (pin.version, pin.purl)
        assert [one["content"] for one in each["hashes"]] == list(pin.sha256)
        assert pin.sha256


def test_what_is_needed_is_there(document: dict[str, Any], repository: Path) -> None:
    """Every direct dependency is required, those of extras are optional, and tools of the tests are left out."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    scopes = {each["name"]: each["scope"] for each in document["components"]}

    def names(texts: list[str]) -> set[str]:
        return {canonicalize_name(Requirement(text).name) for text in texts}

    direct = names(project["dependencies"])
    assert {scopes[name] for name in direct} == {"required"}
    extras = project["optional-dependencies"]
    assert {scopes[name] for extra in ("s3", "nvidia") for name in names(extras[extra]) - direct} == {"optional"}
    assert not {"pytest", "ruff", "mypy", "hypothesis", "moto"} & set(scopes)


def test_the_graph_is_closed(document: dict[str, Any]) -> None:
    """Every package that the graph names is a component."""
    own = document["metadata"]["component"]["bom-ref"]
    known = {each["bom-ref"] for each in document["components"]} | {own}
    assert len(known) == len(document["components"]) + 1
    assert {entry["ref"] for entry in document["dependencies"]} <= known
    assert {other for entry in document["dependencies"] for other in entry["dependsOn"]} <= known


def test_the_same_wheel_gives_the_same_bill(document: dict[str, Any], wheel_file: Path) -> None:
    """The bill has no date and no random number; the program writes it beside the wheel."""
    program = Path(__file__).with_name("sbom.py")
    done = subprocess.run([sys.executable, str(program), str(wheel_file)], capture_output=True, text=True, check=True)
    written = Path(done.stdout.strip())
    assert written == wheel_file.with_name("codecfleet-0.1.0.cdx.json")
    assert json.loads(written.read_text(encoding="utf-8")) == document
