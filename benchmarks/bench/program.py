"""The common parts of all benchmark scripts: a folder for their files, and a clean end."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from .failures import CommandFailed

__all__ = ["CODECFLEET", "FILM", "module_command", "run_in_folder"]

FILM = Path(__file__).resolve().parents[2] / "examples" / "media" / "bunny.mp4"
"""The bundled film excerpt."""


CODECFLEET = (sys.executable, "-P", "-m", "codecfleet")
"""The command line's beginning: this interpreter's codecfleet, whether or not it was installed."""


def module_command(module: str, *arguments: str, python: str = sys.executable) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a module of this package as a program, and the environment in which it is found.

    ``python`` is another interpreter, if its packages are needed.
    """
    searched = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [python, "-m", f"{__package__}.{module}", *arguments]
    return command, {**os.environ, "PYTHONPATH": os.pathsep.join(searched)}


def run_in_folder(work: Callable[[Path], None], parent: Path | None) -> int:
    """Do the work in a temporary folder, in ``parent`` if given, and return the exit code.

    On every exit its commands are ended and the folder is removed. Commands keep their compiled modules, as for a
    user; otherwise each process would compile all of them.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="codecfleet-bench-", dir=parent) as folder:
        try:
            work(Path(folder))
        except CommandFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
