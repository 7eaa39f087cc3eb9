"""The filter of system calls, run as the kernel would run it."""

import errno
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.sandbox.seccomp import RefusedCall, filter_program

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, OTHERS = 0xC000003E, 0x40000003
REFUSED = [41, 101, 425]
ALLOW, REFUSE, MISSING = 0x7FFF0000, 0x00050000 | errno.EACCES, 0x00050000 | errno.ENOSYS
EQUAL, AT_LEAST, HAS_BITS = 0x15, 0x35, 0x45
CLONE, IOCTL, PRLIMIT, CLONE3 = 56, 16, 302, 435
BY_ARGUMENT = [
    RefusedCall(CLONE, 16, ((HAS_BITS, 0x7E020000),)),
    RefusedCall(IOCTL, 24, ((EQUAL, 0x5412), (EQUAL, 0x541C))),
    RefusedCall(PRLIMIT, 16, ((AT_LEAST, 1),)),
]
PROGRAM = filter_program(OURS, REFUSED, BY_ARGUMENT, [CLONE3])
SPECIAL = (*REFUSED, CLONE, IOCTL, PRLIMIT, CLONE3)


def answer(architecture: int, number: int, first: int = 0, second: int = 0) -> int:
    """Run the program on a call with two arguments, by the rules of linux/filter.h."""
    steps: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", PROGRAM))
    word, place = 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:
                word = {0: number, 4: architecture, 16: first, 24: second}[value]
            case 0x15:
                place += if_true if word == value else if_false
            case 0x35:
                place += if_true if word >= value else if_false
            case 0x45:
                place += if_true if word & value else if_false
            case 0x06:
                return value
            case _:
                pytest.fail(f"an instruction that is not known: {code}")


@pytest.mark.parametrize("number", REFUSED)
def test_named_calls_are_refused(number: int) -> None:
    """Each named call, and every call of another architecture or of x32, fails with EACCES."""
    assert answer(OURS, number) == answer(OTHERS, number) == answer(OURS, number | 1 << 30) == REFUSE


@pytest.mark.parametrize(
    ("number", "refused", "allowed"),
    [
        (CLONE, [(0x10000011, 0), (0x40000000, 0), (0x00020011, 7)], [(0x01200011, 0), (0x003D0F00, 0x10000000)]),
        (IOCTL, [(0, 0x5412), (2, 0x541C)], [(0, 0x5413), (0x5412, 0x5401)]),
        (PRLIMIT, [(1, 0), (40_000, 7)], [(0, 7)]),
    ],
)
def test_some_are_refused_by_an_argument(
    number: int, refused: list[tuple[int, int]], allowed: list[tuple[int, int]]
) -> None:
    """Namespaces, the terminal and limits of others cannot be reached; processes, threads and own limits can."""
    assert {answer(OURS, number, *each) for each in refused} == {REFUSE}
    assert {answer(OURS, number, *each) for each in allowed} == {ALLOW}


def test_what_hides_its_flags_is_missing() -> None:
    """clone3, whose flags the filter cannot see, is reported as missing, so the C library falls back to clone."""
    assert answer(OURS, CLONE3) == MISSING


@given(st.integers(0, (1 << 30) - 1).filter(lambda number: number not in SPECIAL), *[st.integers(0, (1 << 32) - 1)] * 2)
def test_all_others_are_allowed(number: int, first: int, second: int) -> None:
    """Calls outside the lists are allowed, but every call of another architecture is refused."""
    assert answer(OURS, number, first, second) == ALLOW
    assert answer(OTHERS, number, first, second) == REFUSE


def test_the_program_is_well_formed() -> None:
    """No jump leaves the program."""
    steps: Iterator[tuple[int, int, int, int]] = struct.iter_unpack("=HBBI", PROGRAM)
    count = len(PROGRAM) // 8
    assert all(
        place + 1 + max(step[1], step[2]) < count for place, step in enumerate(steps) if step[0] in (0x15, 0x35, 0x45)
    )
