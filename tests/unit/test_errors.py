import inspect
import pickle
import re
from pathlib import Path

import pytest

from codecfleet import errors
from codecfleet.errors import CodecfleetError, Retry

CLASSES = sorted(
    (item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, CodecfleetError)),
    key=lambda item: item.__name__,
)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("arguments", [("it broke",), ("it broke: 'ü' \n", "Fix it.")])
def test_every_error_survives_pickling(kind: type[CodecfleetError], arguments: tuple[str, ...]) -> None:
    """After pickling, an error has the same type, arguments, texts and notes."""
    error = kind(*arguments)
    error.add_note("where it happened")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - bytes from this test
    assert type(again) is kind
    assert (again.args, str(again), again.message, again.next_step) == (
        error.args,
        str(error),
        error.message,
        error.next_step,
    )
    assert (again.exit_code, again.retry, again.__notes__) == (error.exit_code, error.retry, error.__notes__)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_reads_as_one_text(kind: type[CodecfleetError]) -> None:
    """``str`` returns the failure and then the next step; without a next step, only the failure."""
    assert str(kind("it broke", "Fix it.")) == "it broke. Fix it."
    assert str(kind("it broke")) == "it broke"


@pytest.mark.parametrize(
    ("family", "code"),
    [("UsageError", 2), ("InputError", 3), ("RequestError", 4), ("WorkError", 5), ("Cancelled", 130)],
)
def test_exit_codes_go_by_family(family: str, code: int) -> None:
    """Every class in a family has the exit code of the family."""
    members = [kind for kind in CLASSES if issubclass(kind, getattr(errors, family))]
    assert members
    assert {kind.exit_code for kind in members} == {code}


def test_everything_public_is_in_the_tree() -> None:
    """``__all__`` has exactly the classes of the module, and each is documented."""
    assert set(errors.__all__) == {kind.__name__ for kind in CLASSES} | {"Retry"}
    assert all(kind.__name__ in (errors.__doc__ or "") and kind.__doc__ for kind in CLASSES)


def test_only_what_may_succeed_is_tried_again() -> None:
    """Bad inputs and bad requests are never tried again, except an output that another process still uses."""
    may = {kind for kind in CLASSES if kind.retry is not Retry.NEVER}
    elsewhere = errors.WorkerLost | errors.EncoderFailed | errors.DeviceError | errors.DeadlineMissed
    elsewhere |= errors.ObjectStoreFull | errors.OutputInUse
    assert may == {kind for kind in CLASSES if issubclass(kind, elsewhere)}


def test_the_page_on_errors_knows_every_one(repository: Path) -> None:
    """docs/errors.md has each error that a user can meet, with its exit code, and no other error."""
    page = (repository / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, flags=re.MULTILINE))
    families = {"CodecfleetError", "InputError", "RequestError"}
    assert rows == {kind.__name__: str(kind.exit_code) for kind in CLASSES if kind.__name__ not in families}
