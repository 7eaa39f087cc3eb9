"""Shortens Ray's errors to one line. Only the text of errors is used, so that Ray need not be imported."""

from .private.words import NEVER_BEGAN


def first_line(error: BaseException) -> str:
    """Return ``error``, or the error that Ray wrapped in it, in one line; Ray's own messages have many lines."""
    cause = getattr(error, "cause", None)  # an attribute of RayTaskError
    if isinstance(cause, BaseException):
        return first_line(cause)
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if NEVER_BEGAN in lines[0]:
        raised = (line for line in lines[1:] if not line[0].isspace())
        return f"it did not start: {next(raised, type(error).__name__).rstrip('.')}"
    return f"{type(error).__name__}: {lines[0].strip().rstrip('.')}"
