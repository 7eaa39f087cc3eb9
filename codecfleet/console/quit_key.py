"""Lets the key q end a command that would otherwise continue."""

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable
from typing import Any, Final, Self

from .output import Display

QUIT: Final = b"qQ"
_READ_BYTES: Final = 64


class QuitKey(Display):
    """Makes a terminal on standard input deliver each key at once. Does nothing if standard input is no terminal."""

    def __init__(self) -> None:
        self._terminal: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        # Standard input may be closed, the terminal may be gone, or this process may not configure it.
        with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
            number = sys.stdin.fileno()
            if os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp():
                self._before = termios.tcgetattr(number)
                tty.setcbreak(number)
                self._terminal = number
        return self

    def close(self) -> None:
        """Restore the settings of the terminal. Idempotent."""
        number, self._terminal = self._terminal, None
        if number is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(number, termios.TCSADRAIN, self._before)

    def attach(self, stop: Callable[[], object]) -> None:
        """Call ``stop`` in the running loop when the key is pressed or the terminal closes."""
        number, loop = self._terminal, asyncio.get_running_loop()
        if number is None:
            return

        def read() -> None:
            pressed = os.read(number, _READ_BYTES)
            if not pressed:
                loop.remove_reader(number)
            if not pressed or set(pressed) & set(QUIT):
                stop()

        loop.add_reader(number, read)
