"""The filter of calls, as the kernel would run it."""

import errno
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.sandbox.seccomp import filter_program

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, OTHERS = 0xC000003E, 0x40000003
REFUSED = [41, 101, 425]
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
PROGRAM = filter_program(OURS, REFUSED)


def answer(architecture: int, number: int) -> int:
    """Run the program on a call, by the rules of linux/filter.h."""
    steps: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", PROGRAM))
    word, place = 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:
                word = {0: number, 4: architecture}[value]
            case 0x15:
                place += if_true if word == value else if_false
            case 0x35:
                place += if_true if word >= value else if_false
            case 0x06:
                return value
            case _:
                pytest.fail(f"an instruction that is not known: {code}")


@pytest.mark.parametrize("number", REFUSED)
def test_named_calls_are_refused(number: int) -> None:
    """Each of them fails with EACCES, and so do all calls of another architecture and those of x32."""
    assert answer(OURS, number) == answer(OTHERS, number) == answer(OURS, number | 1 << 30) == REFUSE


@given(st.integers(0, (1 << 30) - 1).filter(lambda number: number not in REFUSED))
def test_all_others_are_allowed(number: int) -> None:
    """No other call is touched."""
    assert answer(OURS, number) == ALLOW
    assert answer(OTHERS, number) == REFUSE


def test_the_program_is_well_formed() -> None:
    """It is made of whole instructions, and no jump leads out of it."""
    steps: Iterator[tuple[int, int, int, int]] = struct.iter_unpack("=HBBI", PROGRAM)
    count = len(PROGRAM) // 8
    assert all(place + 1 + max(step[1], step[2]) < count for place, step in enumerate(steps) if step[0] in (0x15, 0x35))
