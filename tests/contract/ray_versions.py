"""Runs the contract tests of Ray on the oldest Ray that pyproject.toml allows, and on the newest one.

Each version has an environment that contains only that Ray; everything else comes from the checkout's environment.
"""

import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/unit/cluster/ray", "tests/contract/test_ray.py", "tests/integration/test_embedded.py")
NAME = "ray[default]"
LOOK = "from importlib.metadata import version; print(version('ray'))"


def main() -> int:
    """Test each version once; return how many versions failed."""
    (allowed,) = [each for each in _dependencies() if each.startswith(f"{NAME}>=")]
    oldest = allowed.removeprefix(f"{NAME}>=").partition(",")[0]
    tested: dict[str, int] = {}
    for name, wanted in (("oldest", f"{NAME}=={oldest}"), ("newest", allowed)):
        python = _environment(ROOT / ".venv" / f"ray-{name}", wanted)
        found = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=True).stdout.strip()
        sys.stdout.write(f"the {name} is Ray {found}\n")
        sys.stdout.flush()
        if found not in tested:
            tests = [python, "-m", "pytest", "-q", *TESTS, *sys.argv[1:]]
            tested[found] = subprocess.run(tests, cwd=ROOT, check=False).returncode
    return sum(map(bool, tested.values()))


def _dependencies() -> Sequence[str]:
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return found


def _environment(folder: Path, wanted: str) -> Path:
    """Return the Python of an environment with this Ray, which hides the checkout's Ray."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", wanted], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    beside = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site / "checkout.pth").write_text(beside, encoding="utf-8")
    script = folder / "bin" / "codecfleet"
    script.write_text(
        f"#!{python}\n{_after_first_line(Path(sys.executable).with_name('codecfleet'))}", encoding="utf-8"
    )
    script.chmod(0o755)
    return python


def _after_first_line(script: Path) -> str:
    return script.read_text(encoding="utf-8").partition("\n")[2]


if __name__ == "__main__":
    sys.exit(main())
