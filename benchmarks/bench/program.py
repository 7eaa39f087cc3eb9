"""What every benchmark script does around its work: a folder for its files, and a clean end."""

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from .failures import CommandFailed

__all__ = ["FILM", "run_in_folder"]

FILM = Path(__file__).resolve().parents[2] / "examples" / "media" / "bunny.mp4"
"""The bundled film excerpt."""


def run_in_folder(work: Callable[[Path], None], parent: Path | None) -> int:
    """Do the work in a temporary folder, in ``parent`` if given, and return the exit code.

    However it ends, the commands it runs are ended and the folder is removed.
    """
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
