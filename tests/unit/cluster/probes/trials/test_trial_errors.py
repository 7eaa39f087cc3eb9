"""Error messages of NVIDIA's codecs, read as reasons and fixes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.trials.gpu import (
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
    """A real H200 (driver 580.159.04) has no AV1 decoder and no encoder, so there is nothing to fix."""
    fault = decode_fault(H200_AV1)
    assert (fault.code, fault.fix) == (801, "")
    encoder = encode_fault(H200_ENCODER)
    assert (encoder.code, encoder.fix) == (2, "")
    assert is_whole_device(encoder)


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
    """If CUDA does not start, the decoder ends its process; the output of the process says why."""
    fault = fault_of_death(ChildOutcome(ChildEnd.EXITED, detail="the process exited with code 1", said=said))
    assert fault.code == code
    assert fault.reason
    assert fault.fix


@given(st.text(max_size=400))
def test_any_message_is_one_short_line(message: str) -> None:
    """Any message of a driver becomes one short line, and never causes an error."""
    for fault in (decode_fault(message), encode_fault(message)):
        assert fault.reason
        assert len(fault.reason.splitlines()) == 1
        assert len(fault.reason) < 200


@pytest.mark.parametrize("read", [decode_fault, encode_fault])
def test_what_no_version_said_before_is_told_as_it_is(read: Callable[[str], Fault]) -> None:
    """An unknown message becomes the reason as it is, and an unknown code keeps its message."""
    assert read("the flux is inverted") == Fault(None, "the flux is inverted")
    assert read("Error code : 4711, inverted") == Fault(4711, "Error code : 4711, inverted")
    assert read("") == Fault(None, "it failed without a message")
