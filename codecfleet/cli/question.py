"""A command that prints a single answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from ..console.live import View
from ..console.output import FrameCounter, Output, strict_json
from ..errors import one_line
from .failures import interruptible
from .interrupts import Interrupts
from .sandbox import FileUse
from .services import Answer, Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A command with a single answer: ``probe``, ``plan``, ``verify``, ``infer`` or a command about machines."""

    ask: Callable[[Services, Callable[[Any], None]], Answer]  #: its second argument is the display's ``show``
    as_json: bool
    files: FileUse | None = None  #: None if the files are unknown before the run, or if the command uses other machines
    done_to_frames: str = "compared"  #: what has happened to the frames that ``FrameCounter`` counts
    display: Callable[[TextIO, TextIO], View] | None = (
        None  #: makes the view of events for stdout and stderr; None for a ``FrameCounter``
    )
    interrupted_step: str = ""  #: the advice after a signal

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Print the answer and return the exit code: 1 if files differ or a machine needs a fix, otherwise 0."""

        def answered(interrupts: Interrupts) -> int:
            interrupts.next_step = self.interrupted_step
            counter = FrameCounter(stderr, self.done_to_frames)
            with counter if self.display is None else self.display(stdout, stderr) as shown:
                answer = self.ask(services, shown.show)
            self._print(answer, Output(stdout))
            return 0 if answer.exact else 1

        return interruptible(services, stderr, answered)

    def _print(self, answer: Answer, output: Output) -> None:
        if self.as_json:
            output.line(json.dumps(strict_json(answer.document), allow_nan=False, indent=2))
            return
        for line in answer.lines:
            output.line(safe_line(line))


def safe_line(line: str) -> str:
    """Return ``line`` with control characters escaped; indentation and columns are kept."""
    return "".join(c if c.isprintable() else one_line(c) or " " for c in line)
