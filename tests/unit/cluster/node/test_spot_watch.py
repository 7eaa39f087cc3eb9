"""A watch for the end of a machine, on a metadata server that answers, is slow, comes late or is not there."""

import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from codecfleet.cluster.node.spot import SAFE_S, MetadataAnswer, MetadataQuestion, Notice, Spot
from codecfleet.cluster.node.spot_watch import RARELY_S, TRIES, SpotWatch, ask_server
from tests.metadata_server import GCP, FakeMetadata, metadata_server

QUESTION = MetadataQuestion("/latest", {})


@pytest.fixture
def ec2() -> Iterator[FakeMetadata]:
    """The metadata server of an EC2 instance."""
    with metadata_server(FakeMetadata()) as fake:
        yield fake


class Pauses(list[float]):
    """The pauses of a watch, which is over after ``most``; ``then`` is called in each."""

    def __init__(self, most: int = 20, then: "dict[int, object] | None" = None) -> None:
        super().__init__()
        self.most, self.then = most, then or {}

    def __call__(self, seconds: float) -> bool:
        """Note the pause."""
        self.append(seconds)
        if callable(act := self.then.get(len(self))):
            act()
        return len(self) >= self.most


def watched(spot: Spot, fake: FakeMetadata, pauses: Pauses) -> tuple[Notice | None, int]:
    """Run a watch to its end; return its notice, and how many times it woke the node."""
    woken: list[None] = []
    watch = SpotWatch(spot, partial(ask_server, server=("127.0.0.1", fake.port)), pauses)
    watch.run(lambda: woken.append(None))
    return watch.notice, len(woken)


@pytest.mark.parametrize("spot", [Spot.AUTO, Spot.AWS])
@pytest.mark.parametrize("ahead_s", [0, 3600, -86_400])
def test_a_notice_of_aws_ends_the_watch(spot: Spot, ahead_s: int, ec2: FakeMetadata) -> None:
    """The clock of AWS may be any distance from this machine's."""
    ec2.ahead_s = ahead_s
    pauses = Pauses(then={3: partial(ec2.announce, 60.0)})
    notice, woken = watched(spot, ec2, pauses)
    assert notice is not None
    assert 58 - SAFE_S <= notice.left_s <= 60 - SAFE_S
    assert (woken, pauses) == (1, [5.0] * 3)


def test_a_preemption_by_google_ends_the_watch() -> None:
    """Google is found after AWS did not answer."""
    fake = FakeMetadata(is_gcp=True, values={f"{GCP}preempted": "FALSE", f"{GCP}maintenance-event": "NONE"})
    with metadata_server(fake):
        pauses = Pauses(then={2: partial(fake.values.update, {f"{GCP}preempted": "TRUE"})})
        notice, woken = watched(Spot.AUTO, fake, pauses)
    assert notice == Notice(30 - SAFE_S, "Google Cloud preempts this machine")
    assert (woken, pauses) == (1, [1.0] * 2)


def test_without_a_server_an_unnamed_cloud_is_asked_rarely(ec2: FakeMetadata, caplog: pytest.LogCaptureFixture) -> None:
    """After a few tries it is asked quietly once a minute, so a server that comes late is found."""
    ec2.token_status = 403
    ec2.announce(100)
    pauses = Pauses(then={TRIES + 2: partial(setattr, ec2, "token_status", 200)})
    notice, woken = watched(Spot.AUTO, ec2, pauses)
    assert notice is not None
    assert (woken, pauses[TRIES - 1 :], caplog.records) == (1, [RARELY_S] * 3, [])
    assert sum(pauses[: TRIES - 1]) < 20


def test_a_named_cloud_is_asked_until_it_answers(ec2: FakeMetadata, caplog: pytest.LogCaptureFixture) -> None:
    """A server that comes late is found; the log says once that it was missing."""
    ec2.token_status = 403
    ec2.announce(100)
    pauses = Pauses(then={TRIES + 3: partial(setattr, ec2, "token_status", 200)})
    notice, woken = watched(Spot.AWS, ec2, pauses)
    assert notice is not None
    assert (woken, len(pauses), max(pauses)) == (1, TRIES + 3, 5.0)
    (record,) = caplog.records
    assert "the token of IMDSv2: HTTP status 403" in record.message


def test_a_server_that_fails_in_between_is_asked_again(ec2: FakeMetadata) -> None:
    """A cloud that was found is never given up."""
    fail, recover = partial(setattr, ec2, "values", None), partial(setattr, ec2, "values", {})
    pauses = Pauses(TRIES + 5, then={1: fail, TRIES + 3: recover, TRIES + 4: partial(ec2.announce, 90)})
    notice, _ = watched(Spot.AUTO, ec2, pauses)
    assert notice is not None


def test_no_cloud_starts_no_watch(ec2: FakeMetadata) -> None:
    """With ``off`` nothing is asked."""
    before = threading.active_count()
    SpotWatch(Spot.OFF, partial(ask_server, server=("127.0.0.1", ec2.port))).start(lambda: None)
    assert (threading.active_count(), ec2.asked) == (before, [])


def test_an_answer_is_read_whole(ec2: FakeMetadata) -> None:
    """Status, body and headers arrive, although the server leaves the connection open."""
    answer = ask_server(
        MetadataQuestion("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"),
        ("127.0.0.1", ec2.port),
    )
    assert answer is not None
    assert (answer.status, answer.body, "date" in answer.headers) == (200, "AQAEAJ-token==", True)


def test_a_server_that_hangs_is_left(ec2: FakeMetadata) -> None:
    """There is no answer when the time is over."""
    ec2.hangs = threading.Event()
    assert ask_server(QUESTION, ("127.0.0.1", ec2.port), 0.05) is None


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", None),
        (b"\x00\xff" * 100, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None),
        (b"HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n", 302),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000, 200),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n", None),
    ],
    ids=["nothing", "noise", "cut off", "bad chunks", "no answer", "a redirect", "too much", "headers"],
)
def test_what_is_no_answer_is_none(said: bytes, answer: int | None) -> None:
    """Nothing that a server sends raises an error, and no redirect is followed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=_say, args=(server, said))
        serving.start()
        found = ask_server(QUESTION, server.getsockname()[:2])
        serving.join()
    assert (None if found is None else found.status) == answer
    assert found is None or isinstance(found, MetadataAnswer)


def _say(server: socket.socket, said: bytes) -> None:
    link, _ = server.accept()
    with link:
        link.recv(65_536)
        try:
            link.sendall(said)
        except OSError:  # it has read enough
            return
