"""The state that a journal's records lead to. Pure."""

from dataclasses import dataclass, field, replace

from .records import BadRecord, Begun, Complete, Encoded, JobHeader, Record, RecordStream, unpacked


@dataclass(frozen=True, slots=True)
class Replay:
    """How far a job got."""

    header: JobHeader | None = None
    encoded: dict[int, Encoded] = field(default_factory=dict)  #: by segment
    in_flight: frozenset[int] = frozenset()
    complete: Complete | None = None  #: the whole output, if nothing was begun or encoded after it
    good_records: int = 0  #: those that could be understood
    broken: str = ""  #: what could not, in words; "" where that is only a last record cut short, as by any kill

    @property
    def segments_done(self) -> int:
        """How many planned segments are encoded."""
        return sum(each.until - each.segment + 1 for each in self.encoded.values())

    def after(self, record: Record) -> "Replay":
        """Return the state after one more record. Raises BadRecord: it can't follow on those before it."""
        counted = replace(self, good_records=self.good_records + 1, complete=None)
        match record, self.header:
            case JobHeader(), None:
                return replace(counted, header=record)
            case Begun(segment), JobHeader() as header if 0 <= segment < header.segments:
                return replace(counted, in_flight=self.in_flight | {segment})
            case Encoded(segment=first, until=last), JobHeader() as header if 0 <= first <= last < header.segments:
                # What else covers a part of it was encoded before the cut between them was removed.
                others = {n: each for n, each in self.encoded.items() if each.until < first or n > last}
                encoded = dict(sorted({**others, first: record}.items()))
                return replace(counted, encoded=encoded, in_flight=self.in_flight - set(range(first, last + 1)))
            case Complete(), JobHeader():
                return replace(counted, complete=record)
            case _:
                raise BadRecord(f"a {type(record).__name__} does not follow here")

    def without(self, segments: frozenset[int]) -> "Replay":
        """Return it with some segments to be done again."""
        encoded = {n: each for n, each in self.encoded.items() if n not in segments}
        return replace(self, encoded=encoded, in_flight=self.in_flight | segments)


def replay(stream: RecordStream) -> Replay:
    """Return the state after the records of a stream, up to the first that makes no sense."""
    state = Replay()
    for content in stream.contents:
        try:
            state = state.after(unpacked(content))
        except BadRecord as error:
            lost = len(stream.contents) - state.good_records
            return replace(state, broken=f"record {state.good_records} makes no sense ({error}); {lost} are left out")
    if stream.rest_bytes and not stream.is_torn:
        return replace(state, broken=f"{stream.rest_bytes} bytes after record {state.good_records} are damaged")
    return state
