"""What Ray's errors say, in one line: told by their text alone, so that Ray need not be imported for it."""

from typing import Final

__all__ = ["first_line"]

_NEVER_BEGAN: Final = "an error raised in its creation task"
"""How Ray tells of an actor whose constructor failed: an address, an indented traceback, and then what was raised."""


def first_line(error: BaseException) -> str:
    """Return one line that says what ``error`` is: Ray's messages run over many, with addresses nobody asked for.

    Of an error that remote code raised, and Ray wrapped, it is that error's.
    """
    cause = getattr(error, "cause", None)  # RayTaskError's
    if isinstance(cause, BaseException):
        return first_line(cause)
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if _NEVER_BEGAN in lines[0]:
        raised = (line for line in lines[1:] if not line[0].isspace())
        return f"it did not start: {next(raised, type(error).__name__).rstrip('.')}"
    return f"{type(error).__name__}: {lines[0].strip().rstrip('.')}"
