"""Command lines that make no sense: one line on stderr, exit code 2, and nothing is called for them."""

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Services


def never(*_: object) -> None:
    """Fail: nothing is to be called."""
    pytest.fail("a service was called")


NOTHING = Services(
    **{
        name: never
        for name in vars(Services)
        if not name.startswith("_") and name not in ("exit_now", "confine", "check")
    }
)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("doctor here", "here"),
        ("devices --mig --vgpu", "--vgpu and --mig"),
        ("nodes --address a:1 --fleet f.toml", "--address and --fleet"),
        ("nodes --fleet --json", "--fleet"),
        ("doctor --address", "--address"),
        ("nodes --fresh", "--fresh"),
        ("node", "command"),
        ("node start", "--head"),
        ("node start --address head:6379 --port 80", "--port"),
        ("node start --head --port 70000", "--port"),
        ("node start --head --cpus x", "--cpus"),
        ("node start --head --label a", "--label"),
        ("node env --zone 'a", "--zone"),
        ("node start --head --block --json", "--block"),
        ("node start --head here", "here"),
        ("node stop --head", "--head"),
        ("node list", "no cluster"),
        ("node drain", "NODE"),
        ("node begin", "begin"),
        ("drain", "NODE"),
        ("drain a b", "b"),
        ("cordon --json", "NODE"),
        ("uncordon --force a", "--force"),
        ("status here", "here"),
        ("status --address", "--address"),
        ("status --address --json", "--address"),
        ("cordon a --watch", "--watch"),
        ("top here", "here"),
        ("top --json", "--json"),
        ("submit", "COMMAND"),
        ("submit doctor", "doctor cannot be submitted"),
        ("submit transcode a.mkv", "OUTPUT"),
        ("submit transcode a.mkv b.mp4 --codec mp3", "mp3"),
        ("submit transcode s3://k:secret@b/a.mkv b.mp4", "password"),
        ("submit --codec hevc transcode a.mkv b.mp4", "--codec"),
        ("jobs logs", "needs a job's name"),
        ("jobs stop", "needs a job's name"),
        ("jobs list films --follow", "--follow goes with logs"),
        ("jobs logs j --follow --json", "--follow goes with logs"),
        ("jobs clean films --address http://head:8265", "has no --address"),
        ("jobs list --address http://head:8265", "codecfleet jobs ray --address URL"),
        ("up --workers 0", "--workers"),
        ("up --idle-minutes 0", "--idle-minutes"),
        ("up --idle-minutes 1.5", "--idle-minutes"),
        ("up here", "here"),
        ("down --workers 2", "--workers"),
        ("dashboard here", "here"),
        ("dashboard --port -1", "--port"),
        ("dashboard --port 65536", "--port"),
        ("dashboard --json", "--json"),
    ],
)
def test_nonsense_is_refused(
    line: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names what is wrong."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert run(line.split(), NOTHING) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert named in said.err
