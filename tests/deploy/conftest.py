"""Fixtures for deploy/: YAML as Kustomize renders it, and KubeRay's schemas."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Manifest = dict[str, Any]


def yaml_load_all(text: str) -> Iterator[Any]:
    """Yield YAML documents, by the fast parser where PyYAML was built with it."""
    return iter(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@pytest.fixture(scope="session")
def deploy(repository: Path) -> Path:
    """The folder."""
    return repository / "deploy"


@pytest.fixture(scope="session")
def rendered(deploy: Path) -> Callable[[str], list[Manifest]]:
    """Return the manifests of a layer below deploy/kubernetes, as ``kubectl kustomize`` renders them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl, which renders Kustomize's layers")
    done: dict[str, list[Manifest]] = {}

    def render(layer: str) -> list[Manifest]:
        if layer not in done:
            command = [kubectl, "kustomize", str(deploy / "kubernetes" / layer)]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            assert answer.returncode == 0, answer.stderr
            done[layer] = list(yaml_load_all(answer.stdout))
        return done[layer]

    return render


@pytest.fixture(scope="session")
def kuberay_schemas(repository: Path) -> dict[str, Manifest]:
    """The schemas of KubeRay's v1 resources, by kind."""
    folder = repository.parent / "shared" / "data" / "kuberay"
    if not folder.is_dir():
        pytest.skip(f"KubeRay's schemas are not in {folder}")
    definitions = [
        next(yaml_load_all((folder / f"ray.io_{name}.yaml").read_text())) for name in ("rayclusters", "rayjobs")
    ]
    return {
        each["spec"]["names"]["kind"]: version["schema"]["openAPIV3Schema"]
        for each in definitions
        for version in each["spec"]["versions"]
        if version["name"] == "v1"
    }
