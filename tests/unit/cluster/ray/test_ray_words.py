"""What Ray's errors say, in one line; the long ones as Ray 2.60 wrote them."""

import pytest

from codecfleet.cluster.ray.ray_words import first_line

CREATION = """The actor died because of an error raised in its creation task, \x1b[36mray::A.__init__()\x1b[39m (pid=7)
           ^^^^^^^^^^^^^^^^^^
  File "worker.py", line 5, in __init__
    def __init__(self): raise ValueError("the GPU is lost")
                        ^^^^^^^^^^^^^^^^^^^
"""


class Wrapped(Exception):
    """As RayTaskError: what the remote code raised is inside."""

    def __init__(self, message: str, cause: object) -> None:
        super().__init__(message)
        self.cause = cause


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("one line."), "RuntimeError: one line"),
        (RuntimeError("\n  first\nsecond"), "RuntimeError: first"),
        (RuntimeError(), "RuntimeError"),
        (Wrapped("ray::f() (pid=7)\nTraceback", ValueError("no such file")), "ValueError: no such file"),
        (Wrapped("its node died\nmore", "a text"), "Wrapped: its node died"),
        (
            RuntimeError(f"{CREATION}ValueError: the GPU is lost.\nmore"),
            "it did not start: ValueError: the GPU is lost",
        ),
        (RuntimeError(CREATION), "it did not start: RuntimeError"),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    """No addresses, no traceback, no escape sequences: who raised what."""
    assert first_line(error) == line
