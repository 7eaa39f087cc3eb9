"""Writes a bill of materials beside a wheel: every package that it brings, in CycloneDX 1.6.

    python tests/packaging/sbom.py dist/codecfleet-0.1.0-py3-none-any.whl

Versions and hashes are those of the lock files, with which the tests run; which package needs which is in the packages'
own metadata. The same wheel and locks give the same bytes.
"""

import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

import av
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ("requirements.lock", "requirements-nvidia.lock")
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: Final = ("s3", "quality")
"""Extras for users; those for tests are left out."""
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A package of a lock file."""

    name: str
    version: str
    sha256: tuple[str, ...]

    @property
    def purl(self) -> str:  # github.com/package-url
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(path: Path) -> dict[str, Pinned]:
    """Return what a lock file pins, by normalized name."""
    found: dict[str, Pinned] = {}
    for entry in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if match := _PINNED.match(entry):
            name = canonicalize_name(match[1])
            found[name] = Pinned(name, match[2], tuple(_HASH.findall(entry)))
    return found


def needed(name: str, extras: tuple[str, ...] = ("",)) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the packages that an installed package needs on this platform, each with the extras that it asks for."""
    try:
        texts = requires(name) or []
    except PackageNotFoundError:  # for another platform
        return
    for each in map(Requirement, texts):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
            yield canonicalize_name(each.name), frozenset(each.extras)


def closure(extras: tuple[str, ...]) -> dict[str, set[str]]:
    """Return all packages that codecfleet needs with these extras, each with what it needs itself."""
    texts = [*PROJECT["dependencies"], *(text for each in extras for text in PROJECT["optional-dependencies"][each])]
    asked = [(canonicalize_name(each.name), frozenset(each.extras)) for each in map(Requirement, texts)]
    found: dict[str, set[str]] = {"codecfleet": {name for name, _ in asked}}
    seen: set[tuple[str, frozenset[str]]] = set()
    while asked:
        name, wanted = asked.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        below = list(needed(name, ("", *sorted(wanted))))
        found.setdefault(name, set()).update(other for other, _ in below)
        asked += below
    return found


def bill(wheel: Path) -> dict[str, Any]:
    """Return a wheel's bill of materials."""
    base, nvidia = (locked(ROOT / name) for name in LOCKS)
    required, everything = closure(()), closure(OPTIONAL)
    pinned = {**{name: base[name] for name in sorted(everything) if name in base}, **_only(nvidia, base)}
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    itself = f"pkg:pypi/codecfleet@{PROJECT['version']}"
    native = f"pkg:generic/ffmpeg@{av.ffmpeg_version_info}"
    components = [
        {
            "type": "library",
            "bom-ref": each.purl,
            "name": each.name,
            "version": each.version,
            "purl": each.purl,
            "scope": "required" if each.name in required else "optional",
            "hashes": [{"alg": "SHA-256", "content": content} for content in each.sha256],
        }
        for each in pinned.values()
    ]
    # FFmpeg, which decodes films, is in no lock file: PyAV brings it.
    ffmpeg = {
        "type": "library",
        "bom-ref": native,
        "name": "ffmpeg",
        "version": av.ffmpeg_version_info,
        "purl": native,
        "scope": "required",
        "cpe": f"cpe:2.3:a:ffmpeg:ffmpeg:{av.ffmpeg_version_info}:*:*:*:*:*:*:*",
    }
    graph = [
        {"ref": pinned[name].purl, "dependsOn": sorted(pinned[other].purl for other in below if other in pinned)}
        for name, below in sorted(everything.items())
        if name in pinned
    ]
    for entry in graph:
        if entry["ref"] == pinned["av"].purl:
            entry["dependsOn"] = [*entry["dependsOn"], native]
    direct = sorted(pinned[name].purl for name in required["codecfleet"])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, itself + digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": "codecfleet",
                "version": PROJECT["version"],
                "purl": itself,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": [*components, ffmpeg],
        "dependencies": [{"ref": itself, "dependsOn": direct}, *graph],
    }


def _only(more: dict[str, Pinned], base: dict[str, Pinned]) -> dict[str, Pinned]:
    """Return the packages that the first lock file pins and the second does not."""
    return {name: each for name, each in sorted(more.items()) if name not in base}


def main(wheel: str) -> None:
    """Write the bill beside the wheel."""
    path = Path(wheel)
    target = path.with_name(f"{'-'.join(path.name.split('-')[:2])}.cdx.json")
    target.write_text(f"{json.dumps(bill(path), indent=2)}\n", encoding="utf-8")
    print(target)  # noqa: T201 - what it made


if __name__ == "__main__":
    main(*sys.argv[1:])
