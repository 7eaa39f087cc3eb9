"""What a case's ending means: exact output, a typed error, or a finding."""

import re
import signal
from enum import Enum

from .sandbox import Ending, Step

_ERROR = "codecfleet: error: "
_REFUSALS = (2, 3, 4, 5)


class Outcome(Enum):
    """How a case ended. All but the first two are findings."""

    EXACT = "exact"
    REFUSED = "refused"
    DIFFERS = "differs"
    UNVERIFIED = "unverified"
    DEFECT = "defect"
    NOISE = "noise"
    HANG = "hang"
    CRASH = "crash"
    LEFTOVER = "leftover"

    @property
    def is_finding(self) -> bool:
        """Whether somebody must look at the case."""
        return self not in (Outcome.EXACT, Outcome.REFUSED)


def judge(ending: Ending) -> tuple[Outcome, str]:
    """Return the outcome of a case, and the words that show it."""
    fault = _fault_of_process(ending) or next(filter(None, map(_fault, ending.steps)), None)
    if fault is not None:
        return fault
    done = {step.command: step for step in ending.steps}
    return (Outcome.EXACT, "") if "verify" in done else (Outcome.REFUSED, _gist(done["transcode"].said))


def _fault_of_process(ending: Ending) -> tuple[Outcome, str] | None:
    """Return what is wrong with how the process ended and what it left, None where all is well."""
    last = ending.steps[-1].command if ending.steps else "the start"
    if ending.signal == signal.SIGALRM:
        return Outcome.HANG, f"after {last}"
    if ending.signal:
        return Outcome.CRASH, f"{signal.Signals(ending.signal).name} after {last}"
    if ending.left_processes or ending.left_files:
        return Outcome.LEFTOVER, f"{ending.left_processes} processes, files {', '.join(ending.left_files)}"
    if all(step.command != "transcode" for step in ending.steps):
        return Outcome.CRASH, f"the child ended by itself after {last}"
    return None


def _fault(step: Step) -> tuple[Outcome, str] | None:
    """Return what is wrong with one step, None if the command did its work or refused it properly."""
    said = step.said.strip()
    if step.command == "noise":
        return Outcome.NOISE, said.splitlines()[-1]
    if step.command == "verify" and step.code:
        failed = [line for line in said.splitlines() if line.startswith("FAILED")]
        return (Outcome.DIFFERS, "; ".join(failed)) if step.code == 1 else (Outcome.UNVERIFIED, said)
    if step.code == 0:
        return (Outcome.NOISE, said) if said else None
    is_line = said.startswith(_ERROR) and "\n" not in said and "unexpected" not in said
    return None if step.code in _REFUSALS and is_line else (Outcome.DEFECT, f"{step.command}: {said}")


def _gist(said: str) -> str:
    """Return an error's line without names and numbers, so that equal ones count as one."""
    return re.sub(r"\d+", "N", re.sub(r"/\S+", "FILE", said.strip().removeprefix(_ERROR)))
