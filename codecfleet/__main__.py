"""Runs ``codecfleet`` and ``python -m codecfleet``. Ctrl-C ends it with one line, even during imports.

Until a command handles signals itself, nothing needs cleaning up. By default, Python would raise an exception in the
middle of an import, and the user would see a traceback and the wrong exit code.
"""

import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

_LINE: Final = b"codecfleet: error: interrupted.\n"


def end_on_signals() -> None:
    """End this process at once on Ctrl-C, SIGTERM or a closed terminal; ignored signals stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of signal handlers
    try:
        os.write(2, _LINE)
    finally:
        os._exit(128 + number)


def main() -> int:
    """Run ``sys.argv`` and return the exit code."""
    end_on_signals()
    from .cli.app import main as run  # noqa: PLC0415 - the handlers come first

    return run()


if __name__ == "__main__":
    sys.exit(main())
