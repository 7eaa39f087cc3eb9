"""What NVIDIA's codecs say when they refuse, read as reasons and fixes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.child.trial_errors import (
    Fault,
    decode_fault,
    encode_fault,
    fault_of_death,
    is_whole_device,
)

H200_AV1 = (
    "HandleVideoSequence : \nError code : 801\nError Type : CUDA_ERROR_NOT_SUPPORTED\n"
    "Codec not supported on this GPU\nat NvDecoder.cpp:231"
)
H200_ENCODER = (
    "NvEncoder : m_nvenc.nvEncOpenEncodeSessionEx(&params, &encoder) returned error 2\nError code : 2\nat x.cpp:9"
)


def test_an_h200_has_no_av1_decoder_and_no_encoder() -> None:
    """The messages of the real one (driver 580.159.04): both are its nature, so there is nothing to fix."""
    fault = decode_fault(H200_AV1)
    assert (fault.code, fault.fix) == (801, "")
    encoder = encode_fault(H200_ENCODER)
    assert (encoder.code, encoder.fix) == (2, "")
    assert is_whole_device(encoder)


@pytest.mark.parametrize(
    ("code", "words", "fix"),
    [
        (2, "memory", "end other processes on this device"),
        (100, "no CUDA device", "--gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"),
        (201, "context is not usable", "codecfleet doctor --fresh"),
        (222, "too old", "install a driver from R570 on"),
        (304, "operating system refused", "--gpus all"),
        (803, "belong together", "restart the machine after a driver upgrade"),
        (804, "forward", "out of LD_LIBRARY_PATH and ld.so.conf, and install a newer driver instead"),
        (999, "gave up", "sudo dmesg | grep Xid"),
    ],
)
def test_what_can_be_repaired_says_how(code: int, words: str, fix: str) -> None:
    """A decoder's CUDA errors that a user can act upon carry the act."""
    fault = decode_fault(f"cuvidCreateDecoder : \nError code : {code}\nError Type : x")
    assert words in fault.reason
    assert fix in fault.fix


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (10, "close other encoder sessions on this machine, or free GPU memory"),
        (15, "install a driver from R570 on, which has interface 13.0"),
        (21, 'reinstall PyNvVideoCodec: pip install "codecfleet[nvidia]"'),
    ],
)
def test_what_an_encoder_lacks_says_how(code: int, fix: str) -> None:
    """An encoder's errors that a user can act upon carry the act, too."""
    assert encode_fault(f"nvEncOpenEncodeSessionEx returned error {code}").fix == fix


def test_a_session_limit_is_not_a_missing_encoder() -> None:
    """Error 10 is memory or a session too many: the driver says the same for both, and so do we."""
    fault = encode_fault("nvEncOpenEncodeSessionEx returned error 10")
    assert "sessions" in fault.reason
    assert "memory" in fault.reason
    assert not is_whole_device(fault)


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("RuntimeError: Failed to load NVENC library: libnvidia-encode.so.1: cannot open", "compute,video,utility"),
        ("libnvcuvid.so.1: cannot open shared object file", "compute,video,utility"),
        ("RuntimeError: Driver version is too old", "install a driver from R570 on"),
        ("ModuleNotFoundError: No module named 'PyNvVideoCodec'", 'pip install "codecfleet[nvidia]"'),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_fix(message: str, fix: str) -> None:
    """Import errors are told apart by what is missing."""
    assert fix in decode_fault(message).fix


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("[FATAL] cuInit(0) returned error 803", 803),
        ("line 12\nCUDA error: 2 out of memory", 2),
        ("warning, error 7 of another program\nerror code : 999", 999),
        ("no number at all", None),
        ("", None),
    ],
)
def test_a_dead_process_is_read_by_its_last_words(said: str, code: int | None) -> None:
    """The decoder ends its process when CUDA does not start; what it printed says why."""
    fault = fault_of_death(ChildOutcome(ChildEnd.EXITED, detail="the process exited with code 1", said=said))
    assert fault.code == code
    assert fault.reason
    assert fault.fix


@given(st.text(max_size=400))
def test_any_message_is_one_short_line(message: str) -> None:
    """Whatever a driver says becomes one line of bearable length, and never an error."""
    for fault in (decode_fault(message), encode_fault(message)):
        assert fault.reason
        assert len(fault.reason.splitlines()) == 1
        assert len(fault.reason) < 200


@pytest.mark.parametrize("read", [decode_fault, encode_fault])
def test_what_no_version_said_before_is_told_as_it_is(read: Callable[[str], Fault]) -> None:
    """An unknown message is its own reason, and an unknown number keeps the words it came with."""
    assert read("the flux is inverted") == Fault(None, "the flux is inverted")
    assert read("Error code : 4711, inverted") == Fault(4711, "Error code : 4711, inverted")
    assert read("") == Fault(None, "it failed without a word")
