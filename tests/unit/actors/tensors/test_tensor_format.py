"""Which formats are refused, and how."""

from typing import Any

import pytest

from codecfleet import UsageError
from codecfleet.actors.tensors.tensor_format import TensorFormat


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "chw"}, "layout is 'chw'"),
        ({"dtype": "float64"}, "must be one of uint8, float16, float32, bfloat16"),
        ({"colour": "bgr"}, "colour is 'bgr'"),
        ({"filter": "area"}, "filter is 'area'"),
        ({"size": (224,)}, "must be 2 whole numbers"),
        ({"size": 224}, "must be 2 whole numbers"),
        ({"size": (0, 4)}, "sides must be 1 to 32768"),
        ({"size": (4.5, 4)}, "must be 2 whole numbers"),
        ({"crop": (-1, 0, 4, 4)}, "and places not negative"),
        ({"mean": 0.5}, "uint8, which is not normalised"),
        ({"dtype": "float32", "mean": (1, 2)}, "must be 1 or 3 finite numbers"),
        ({"dtype": "float32", "mean": "a"}, "must be numbers"),
        ({"dtype": "float32", "std": (1, 0, 1)}, "must be positive"),
        ({"dtype": "float32", "std": float("nan")}, "finite"),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    """In one line that names the option and its value."""
    with pytest.raises(UsageError) as refused:
        TensorFormat(**options)
    assert words in refused.value.message
    assert "\n" not in str(refused.value)


def test_equal_formats_are_one() -> None:
    """Lists, names and single numbers mean the same as tuples, filters and one number for each channel."""
    given: dict[str, Any] = {"size": [4, 6], "filter": "lanczos", "dtype": "float32", "mean": 0.5, "std": [0.25]}
    format_ = TensorFormat(**given)
    assert format_ == TensorFormat(**{**given, "size": (4, 6), "mean": (0.5,), "std": (0.25,)})
    assert hash(format_)
    assert format_.normalisation() == ((0.5, 0.25),) * 3
    assert format_.shape(5, (4, 6)) == (5, 3, 6, 4)
