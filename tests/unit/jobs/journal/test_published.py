"""What a journal states about an output that is already published."""

import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.journal.header import header_of
from codecfleet.jobs.journal.journal import Replay, replay
from codecfleet.jobs.journal.records import Begun, Complete, JobHeader, Record, read_stream
from codecfleet.jobs.journal.work import published
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.fake_fleet import sample_report

from .test_records import HEADER, RECORDS, encoded, stream

COMPLETE = Complete(3, hashlib.sha256(b"abc").hexdigest(), {"output": "caf\udce9.mp4"})


@given(RECORDS, RECORDS, st.data())
def test_only_the_last_word_completes_a_job(before: list[Record], after: list[Record], data: st.DataObject) -> None:
    """Cut off anywhere, a journal calls the output complete only if its last record says so."""
    records = [HEADER, *before, COMPLETE, *after]
    written, ends = stream(records)
    cut = data.draw(st.integers(0, len(written)))
    whole = sum(end <= cut for end in ends)
    found = replay(read_stream(written[:cut]))
    assert found.broken == ""
    assert (found.complete is not None) is (whole == len(before) + 2)
    if found.complete is not None:
        assert found.complete == COMPLETE


def test_a_whole_output_of_no_job_makes_no_sense() -> None:
    """A record of a complete output needs the job's header before it, and may be repeated."""
    assert "makes no sense" in replay(read_stream(stream([COMPLETE])[0])).broken
    again = replay(read_stream(stream([HEADER, encoded(0), COMPLETE, Begun(1), COMPLETE])[0]))
    assert again.complete == COMPLETE


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> tuple[TranscodeSpec, Replay]:
    """A job whose output of three bytes is recorded and exists."""
    folder = tmp_path_factory.mktemp("noted")
    make_clip(folder / "in.mkv", Clip(times=constant_times(5)))
    spec = TranscodeSpec(source=str(folder / "in.mkv"), output=str(folder / "out.mkv"))
    (folder / "out.mkv").write_bytes(b"abc")
    report = sample_report().model_dump(mode="json")
    records: list[Record] = [header_of(plan_transcode(spec)), Complete(3, COMPLETE.output_sha256, report)]
    return spec, replay(read_stream(stream(records)[0]))


def test_the_noted_file_is_published(noted: tuple[TranscodeSpec, Replay]) -> None:
    """The report is that of the earlier run and says so; options that change no byte may differ."""
    spec, found = noted
    for other in ({}, {"overwrite": True}, {"workers": 3}, {"restart": True}):
        report = published(found, spec.model_copy(update=other))
        assert report is not None
        assert report.resumed is not None
        assert report.resumed.published
        assert all(each.restored for each in report.segments)


def test_whatever_is_not_certain_is_not_published(noted: tuple[TranscodeSpec, Replay], tmp_path: Path) -> None:
    """Another size, content, name or encoder, a missing file, or another journal means that nothing was published."""
    spec, found = noted
    assert found.complete is not None
    changes = [("output_bytes", 4), ("output_sha256", "0"), ("report", {})]
    records = [
        Complete(*(new if name == each else getattr(found.complete, each) for each in Complete.__slots__))
        for name, new in changes
    ]
    assert isinstance(found.header, JobHeader)
    journals = [replay(read_stream(stream([found.header, record])[0])) for record in records]
    specs = [spec.model_copy(update=each) for each in ({"preset": 1}, {"encoder": "nvenc"}, {"output": str(tmp_path)})]
    for journal, asked in itertools.chain(
        ((each, spec) for each in [*journals, Replay(), replay(read_stream(stream([HEADER, COMPLETE])[0]))]),
        ((found, each) for each in specs),
    ):
        assert published(journal, asked) is None
