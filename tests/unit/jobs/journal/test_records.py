"""A journal's bytes: what may be lost of them, and what still holds then."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.actors.media.timeline import RepairedTime
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.errors import JournalRefused, OutputInUse
from codecfleet.jobs.join.owner import Owner, still_holds
from codecfleet.jobs.join.spool import Spool
from codecfleet.jobs.journal.header import difference
from codecfleet.jobs.journal.journal import Journal, Replay, replay
from codecfleet.jobs.journal.records import (
    BadRecord,
    Begun,
    Encoded,
    JobHeader,
    Record,
    framed,
    packed,
    read_stream,
    unpacked,
)
from codecfleet.jobs.journal.stores import FolderStore, ObjectStore, Store

SEGMENTS = 6
SPEC = {"source": "caf\udce9.mkv", "preset": 4}
HEADER = JobHeader(
    job={"spec": SPEC, "codecfleet": "1"},
    encoder={"kind": "libx264 preset=medium"},
    spec=SPEC,
    output="o.mp4",
    segments=SEGMENTS,
)


def facts(segment: int) -> EncodedSegment:
    """Return the facts of a segment of three pictures."""
    seam = (PictureHash(segment, b"before"), PictureHash(segment + 1, b"\xff\x00"))
    return EncodedSegment(
        segment=segment,
        pts_ticks=np.array([3, 1, 2], dtype=np.int64) + segment * 100,
        sizes_bytes=np.array([30, 10, 20], dtype=np.int64),
        keyframes=np.array([True, False, False]),
        payload=np.empty(0, dtype=np.uint8),
        extradata=b"\x01\x64",
        tally=SegmentTally(
            frames=3, seam_before=seam, damaged_ticks=(7,), repaired=RepairedTime(missing=2), fallback="caf\udce9"
        ),
        resized={(64, 48): 3},
        encode_s=0.5,
        wall_s=1.5,
    )


def encoded(segment: int, until: int | None = None, attempt: int = 1) -> Encoded:
    """Return the record of a segment."""
    return Encoded(segment, segment if until is None else until, 0, attempt, facts(segment), 60, f"{segment:064d}")


def stream(records: Sequence[Record]) -> tuple[bytes, list[int]]:
    """Return a journal's bytes, and the end of each record."""
    data, ends, checksum = b"", [], read_stream(b"").checksum
    for record in records:
        written, checksum = framed(packed(record), checksum)
        data += written
        ends.append(len(data))
    return data, ends


def lines(state: Replay) -> list[bytes]:
    """Return the comparable parts of a job's state."""
    return [packed(each) for each in state.encoded.values()]


RECORDS = st.lists(
    st.one_of(
        st.builds(Begun, st.integers(0, SEGMENTS - 1)),
        st.builds(
            lambda first, more, attempt: encoded(first, min(first + more, SEGMENTS - 1), attempt),
            st.integers(0, SEGMENTS - 1),
            st.integers(0, 2),
            st.integers(1, 3),
        ),
    ),
    max_size=8,
)


def test_a_record_comes_back_as_it_was() -> None:
    """A record comes back with every fact, even names that are not text."""
    again = unpacked(packed(encoded(2, 3)))
    assert isinstance(again, Encoded)
    assert packed(again) == packed(encoded(2, 3))
    assert again.facts.tally == facts(2).tally
    assert again.facts.resized == {(64, 48): 3}
    assert again.facts.pts_ticks.tolist() == [203, 201, 202]
    assert unpacked(packed(HEADER)) == HEADER


@given(RECORDS, st.data())
def test_any_prefix_is_a_prefix_of_the_records(records: list[Record], data: st.DataObject) -> None:
    """Cut off anywhere, a journal has the state that it had at that length, and counts as undamaged."""
    written, ends = stream([HEADER, *records])
    cut = data.draw(st.integers(0, len(written)))
    whole = sum(end <= cut for end in ends)
    found = replay(read_stream(written[:cut]))
    expected = replay(read_stream(written[: ends[whole - 1] if whole else 0]))
    assert (lines(found), found.in_flight, found.broken) == (lines(expected), expected.in_flight, "")
    assert found.good_records == whole


@given(RECORDS, st.data())
def test_damage_costs_records_and_never_makes_one_up(records: list[Record], data: st.DataObject) -> None:
    """Whatever bytes are changed, left out or doubled, the records that can be read are those that were written."""
    written, ends = stream([HEADER, *records])
    first = data.draw(st.integers(0, len(written) - 1))
    last = data.draw(st.integers(first, min(len(written), first + 200)))
    damaged = written[:first] + data.draw(st.binary(max_size=60)) + written[last:]
    found = read_stream(damaged)
    whole = read_stream(written).contents
    assert found.contents == whole[: len(found.contents)]
    assert len(found.contents) >= sum(end <= first for end in ends)
    if damaged != written[: len(damaged)] and len(found.contents) < len(whole) and not found.is_torn:
        assert replay(found).broken


def test_a_record_moved_or_doubled_is_not_read() -> None:
    """A whole record in the wrong place ends the readable part."""
    written, ends = stream([HEADER, encoded(0), encoded(1), encoded(2)])
    parts = [written[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    for order in ([0, 2, 1, 3], [0, 1, 1, 2], [0, 2, 3], [1, 2, 3]):
        found = read_stream(b"".join(parts[number] for number in order))
        assert len(found.contents) < len(order)
        assert found.contents == read_stream(written).contents[: len(found.contents)]


def test_the_latest_word_on_a_part_of_the_track_counts() -> None:
    """A segment that absorbed its neighbour replaces both; segments begun but not finished are in flight."""
    records: list[Record] = [HEADER, Begun(0), encoded(0), Begun(1), encoded(1), Begun(0), encoded(0, 1, 2), Begun(4)]
    found = replay(read_stream(stream(records)[0]))
    assert [(each.segment, each.until, each.attempt) for each in found.encoded.values()] == [(0, 1, 2)]
    assert (found.segments_done, found.in_flight) == (2, frozenset({4}))
    again = replay(read_stream(stream([*records, encoded(1, 1, 3)])[0]))
    assert list(again.encoded) == [1]


@pytest.mark.parametrize(
    "records",
    [[Begun(0)], [HEADER, HEADER], [HEADER, Begun(SEGMENTS)], [HEADER, encoded(5, 6)], [HEADER, encoded(3, 2)]],
)
def test_a_record_out_of_place_ends_the_journal(records: list[Record]) -> None:
    """A record that cannot follow those before it is left out, with the reason."""
    found = replay(read_stream(stream(records)[0]))
    assert found.good_records == len(records) - 1
    assert "makes no sense" in found.broken


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x90", b"\x81\xa4kind\xa4none", b"\x81\xa4kind\xa7encoded"])
def test_a_content_of_another_program_is_no_record(content: bytes) -> None:
    """The content of another program is refused as no record."""
    with pytest.raises(BadRecord):
        unpacked(content)


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_a_journal_goes_on_where_it_could_be_read(kind: str, tmp_path: Path) -> None:
    """After a torn or damaged end, new records follow the last good one, in a folder and in a store."""

    def store() -> Store:
        return FolderStore(tmp_path) if kind == "folder" else ObjectStore(f"memory://{tmp_path.name}/w")

    journal = Journal(store())
    assert journal.open() == Replay()
    journal.begin(HEADER)
    for segment in range(3):
        journal.note(encoded(segment))
    damage(store(), tmp_path)
    journal = Journal(store())
    assert list(journal.open().encoded) == [0, 1]
    journal.note(encoded(4))
    found = Journal(store()).open()
    assert (list(found.encoded), found.broken) == ([0, 1, 4], "")
    store().remove()
    assert Journal(store()).open() == Replay()


def damage(store: Store, folder: Path) -> None:
    """Cut the last record short."""
    if isinstance(store, ObjectStore):
        store.write("record-00000003", store.content("record-00000003")[:-5])
    else:
        (folder / "journal").write_bytes((folder / "journal").read_bytes()[:-5])


def test_what_differs_is_named() -> None:
    """The journal of another job is refused with the option, or the part of input or encoder, that differs."""
    other = JobHeader(
        job={**HEADER.job, "spec": {**SPEC, "preset": 5}},
        encoder={"kind": "libx265"},
        spec=SPEC,
        output="o.mp4",
        segments=SEGMENTS,
    )
    assert difference(HEADER, HEADER) is None
    assert difference(HEADER, other) == ("--preset was 4 and is 5", "run the command that began it")
    same = JobHeader(job=HEADER.job, encoder=other.encoder, spec=SPEC, output="o.mp4", segments=SEGMENTS)
    assert "libx264" in str(difference(HEADER, same))
    older = JobHeader(job={**HEADER.job, "spec": {}}, encoder={}, spec={}, output="o.mp4", segments=SEGMENTS)
    assert difference(older, HEADER) == ("its options belong to another version", "run the command that began it")
    assert difference(HEADER, same, encoder=False) is None


HERE = Owner("here", "boot-1", 10, "500", "a")
THERE = Owner("there", "boot-2", 10, "500", "b")


@pytest.mark.parametrize(
    ("other", "lives", "locks_work", "holds"),
    [
        (None, False, True, False),
        (HERE, True, True, False),  # the process has lost its lock, and so has ended
        (HERE, True, False, True),
        (HERE, False, False, False),
        (THERE, True, True, True),
        (THERE, False, True, False),
    ],
)
def test_who_owns_a_folder(other: Owner | None, lives: bool, locks_work: bool, holds: bool) -> None:  # noqa: FBT001
    """On one machine the lock decides who owns a folder, if there are locks; elsewhere the lease."""
    assert still_holds(other, HERE, lives=lives, locks_work=locks_work) is holds


def test_a_lease_ends() -> None:
    """An owner on another machine counts as dead once it has not renewed its lease for a minute."""
    assert THERE.lives(HERE, 59)
    assert not THERE.lives(HERE, 61)
    assert not HERE.lives(HERE, 0), "no process of that number began at that time"
    me = Owner.here()
    assert me.lives(me, 1000)


def test_an_owner_that_has_ended_lives_no_more() -> None:
    """A killed owner counts as dead even before its parent has waited for it, as in a container without init."""
    with subprocess.Popen(["sleep", "60"]) as process:
        began = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = replace(Owner.here(), pid=process.pid, began=began)
        assert owner.lives(Owner.here(), 0)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not owner.lives(Owner.here(), 0)


def test_one_owner_of_a_folder(tmp_path: Path) -> None:
    """A second job is refused at once with the owner's name, and gets the folder when the owner releases it."""
    folder = tmp_path / ".o.mp4.codecfleet"
    first, second = Spool(folder, "o.mp4"), Spool(folder, "o.mp4")
    first.open()
    (folder / "output.mp4").touch()
    with pytest.raises(OutputInUse, match=r"another job writes o\.mp4: process"):
        second.open()
    first.remove()
    assert not folder.exists()
    second.open()
    (folder / "journal").touch()
    second.keep()
    with pytest.raises(JournalRefused, match="unfinished job"):
        Spool(folder, "o.mp4").open()
    third = Spool(folder, "o.mp4")
    third.open(discards=True)
    assert [path.name for path in folder.iterdir()] == ["owner"]
    third.remove()
