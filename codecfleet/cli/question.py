"""A command that answers once, and prints its answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from ..console.output import FrameCounter, Output, ReaderGone, strict_json
from ..errors import one_line
from .calls.answers import Answer
from .failures import failure_of, print_failure
from .interrupts import Interrupts
from .sandbox.files import FileUse
from .services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A command that answers once: ``probe``, ``plan``, ``verify``, ``infer`` or one about machines.

    ``ask`` gets the services and a function that shows how many frames are ``done_to_frames`` so far.
    """

    ask: Callable[[Services, Callable[[int], None]], Answer]
    as_json: bool
    files: FileUse | None = None
    """The files that it needs; None where they are not known before it runs, or it reaches other machines."""
    done_to_frames: str = "compared"

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Print the answer and return the exit code: 1 when files differ or a machine needs a fix, else 0.

        Raises:
            ReaderGone: stdout was closed.
        """
        with Interrupts(services.exit_now) as interrupts:
            interrupts.attach_here()
            try:
                with FrameCounter(stderr, self.done_to_frames) as counter:
                    answer = self.ask(services, counter.show)
                _print_answer(answer, Output(stdout), as_json=self.as_json)
            except ReaderGone:
                raise
            except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
                failure = failure_of(error, interrupts.exit_code)
                print_failure(failure, error, stderr)
                return failure.exit_code
        return 0 if answer.exact else 1


def _print_answer(answer: Answer, output: Output, *, as_json: bool) -> None:
    if as_json:
        output.line(json.dumps(strict_json(answer.document), allow_nan=False, indent=2))
        return
    for line in answer.lines:
        output.line(safe_line(line))


def safe_line(line: str) -> str:
    """Return ``line`` with its indentation and columns kept, and control characters escaped."""
    return "".join(c if c.isprintable() else one_line(c) or " " for c in line)
