"""Values that pass between two releases: fields are known by name, so either side may have more of them."""

import copy
import io
import pickle
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.by_name import ByName, packed, unpacked
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport
from codecfleet.cluster.worker.heartbeat import Ending, Heartbeat
from codecfleet.cluster.worker.outcome import Outcome

REPORT = ClientReport("me", "host process 7", 3, (JobReport(plain_demand("job", 2), {"n/cpu#0:1": 2}),), ("n/cpu#0:1",))


class Later(ByName):
    """Pickles as a later release might: every value has a field more."""

    def reducer_override(self, value: object) -> Any:
        """Pickle a value of ours so, and any other as ever."""
        found = super().reducer_override(value)
        if found is NotImplemented:
            return found
        rebuild, (kind, values) = found
        return rebuild, (kind, {"of_a_later_release": 7, **values})


class Earlier(ByName):
    """Pickles as an earlier release might: of the named fields there is none."""

    def __init__(self, file: io.BytesIO, without: frozenset[str]) -> None:
        super().__init__(file)
        self._without = without

    def reducer_override(self, value: object) -> Any:
        """Pickle a value of ours so, and any other as ever."""
        found = super().reducer_override(value)
        if found is NotImplemented:
            return found
        rebuild, (kind, values) = found
        return rebuild, (kind, {name: each for name, each in values.items() if name not in self._without})


def pickled(pickler: type[ByName], value: object, *arguments: Any) -> bytes:
    """Return what a pickler makes of a value."""
    file = io.BytesIO()
    pickler(file, *arguments).dump(value)
    return file.getvalue()


@pytest.mark.parametrize("value", [REPORT, Heartbeat(7, (("job", "segment 1"),), ended={Ending.DONE: 2}), Policy()])
def test_they_come_back_as_they_were(value: object) -> None:
    """However it is pickled or copied."""
    assert unpacked(packed(value)) == value
    assert copy.deepcopy(value) == value
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value  # noqa: S301 - our own bytes


@pytest.mark.parametrize("value", [REPORT, Policy(gpu_share=0.7)])
def test_what_a_later_release_adds_is_left_out(value: object) -> None:
    """Wherever in a message it is."""
    assert unpacked(pickled(Later, value)) == value


DEFAULTED = frozenset({"software_decode", "weight", "dlas", "pyav"})


@given(st.sets(st.sampled_from(sorted(DEFAULTED))))
def test_what_an_earlier_release_lacks_has_its_default(without: set[str]) -> None:
    """Each of those fields that it does not send, and no other."""
    default = plain_demand("job", 3)
    sent = replace(default, software_decode="it is damaged", weight=Fraction(3), dlas=(1,), pyav="1.2")
    found = unpacked(pickled(Earlier, sent, frozenset(without)))
    for name in DEFAULTED:
        assert getattr(found, name) == getattr(default if name in without else sent, name)


def test_a_field_that_a_message_cannot_do_without() -> None:
    """It is named where it is missing."""
    with pytest.raises(TypeError, match="Demand came without segments"):
        unpacked(pickled(Earlier, REPORT, frozenset({"segments"})))


def test_large_results_are_not_copied() -> None:
    """Arrays in an outcome lie beside its pickle, and come back as views of that."""
    tally = SegmentTally(**{each.name: None for each in fields(SegmentTally)})  # type: ignore[arg-type] - not looked at
    payload = np.arange(1_000_000, dtype=np.uint8)
    segment = EncodedSegment(
        segment=1,
        pts_ticks=np.arange(3),
        sizes_bytes=np.arange(3),
        keyframes=np.zeros(3, dtype=np.bool_),
        payload=payload,
        extradata=b"",
        tally=tally,
        resized={},
        encode_s=0.0,
        wall_s=0.0,
    )
    aside: list[pickle.PickleBuffer] = []
    content = pickle.dumps(Outcome(segment), 5, buffer_callback=aside.append)
    assert len(content) < 10_000
    found = pickle.loads(content, buffers=[each.raw() for each in aside]).result  # noqa: S301 - our own bytes
    assert np.shares_memory(found.payload, payload)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A value of somebody else's module."""

    content: Any


def test_others_values_are_left_to_pickle() -> None:
    """A user's dataclass in a result is pickled as it asks to be."""
    assert b"content" not in packed(Stranger(1))
    assert unpacked(packed(Outcome(Stranger(1)))) == Outcome(Stranger(1))
