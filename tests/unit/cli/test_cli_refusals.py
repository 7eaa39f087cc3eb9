"""Invalid command lines: one line on stderr, exit code 2, and no service is called.

tests/unit/jobs/request/test_values.py tests how each kind of value is read.
"""

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Services


def never(*_: object) -> None:
    """Fail, because no service may be called."""
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
        ("", "--help"),
        ("transcoded a b", "transcode"),
        ("transcode", "INPUT"),
        ("transcode a", "OUTPUT"),
        ("transcode a b c", "c"),
        ("transcode a b --bitrat 4M", "--bitrat"),
        ("transcode a b --bitrate", "--bitrate"),
        ("transcode a b --bitrate nan", "--bitrate"),
        ("transcode a b --quality 20 --bitrate 4M", "--quality"),
        ("transcode a b --maxrate 4M", "--bufsize"),
        ("transcode a b --start 5 --end 3", "--end"),
        ("transcode a b --rotate 45", "--rotate"),
        ("transcode a b --device tpu", "--device"),
        ("transcode a b --report --json", "--report"),
        ("transcode a b --json --quiet", "--quiet"),
        ("transcode a b --report b", "--report"),
        ("transcode a b.mp4 --preset web-h246", "Did you mean web-h264?"),
        ("transcode a b.mp4 --preset phone --preset web-h264", "--preset"),
        ("probe --bogus x", "codecfleet probe --help"),
        ("plan a b --workers -1", "--workers"),
        ("plan a.mkv --fleet f.toml --address auto", "--fleet and --address exclude each other"),
        ("plan a.mkv --fleet f.toml --autoscale a.toml", "--fleet and --autoscale exclude each other"),
        *((f"plan a.mkv {option}=", f"{option} is empty") for option in ("--fleet", "--address", "--policy")),
        ("verify a b --start 5 --end 3", "--end"),
        ("verify a b --video-track x", "--video-track"),
        ("ladder a b --packaged-seconds 0", "--packaged-seconds"),
        ("ladder a b --layout tracks", "--layout"),
        ("ladder a b --scale 720p", "--scale"),
        ("ladder a", "DIR"),
        ("stills a b", "exactly one of --every, --count and --scene"),
        ("stills a b --every 1 --count 2", "exactly one of --every, --count and --scene"),
        ("stills a b --every soon", "--every 'soon' is not a time"),
        ("stills a b --count 2 --sheet 10", "--sheet '10' is not a grid"),
        ("stills a b --count 2 --sheet 1001x1", "--sheet '1001x1' is out of range"),
        ("stills a b --count 2 --width 9 --scale 9p", "--width and --scale exclude each other"),
        ("stills a b --count 2 --format png --quality 9", "--quality is for jpg and webp"),
        ("presets show", "NAME is missing"),
        ("presets list phone", "takes no name"),
        ("presets show phon", "Did you mean phone?"),
        ("presets remove phone", "list or show"),
        ("config", "show"),
        ("config edit", "show"),
        ("docs encoder", "Did you mean encoders?"),
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
        ("submit --address http://h transcode s3://k:secret@b/a.mkv b.mp4", "password"),
        ("submit --codec hevc transcode a.mkv b.mp4", "--codec"),
        ("submit --id a/b transcode a.mkv b.mp4", "is not a valid id"),
        ("submit --priority high transcode a.mkv b.mp4", "--priority"),
        ("submit --due soon transcode a.mkv b.mp4", "--due"),
        ("submit --no-wait transcode a.mkv b.mp4", "--no-wait does not apply to a queue"),
        ("submit --id a --address http://h transcode a.mkv b.mp4", "--id does not apply to a cluster"),
        ("submit --queue q --address http://h transcode a.mkv b.mp4", "--queue and --address"),
        ("submit --queue postgresql://h/q transcode s3://k:secret@b/a.mkv b.mp4", "password"),
        ("driver --jobs-at-once 0", "--jobs-at-once"),
        ("driver --lease-seconds 1", "--lease-seconds"),
        ("driver --queue redis://h", "cannot hold a queue"),
        ("driver --free-memory-gb 1.5", "--free-memory-gb"),
        ("node start --address h:1 --queue postgresql://db/q", "--queue requires --jobs-at-once"),
        ("node start --address h:1 --jobs-at-once 2 --queue redis://h", "cannot hold a queue"),
        ("node start --head --cpus 0 --jobs-at-once 2", "does no work"),
        ("jobs ray", "list, show"),
        ("jobs logs", "needs a job's id"),
        ("jobs logs --queue q", "`codecfleet jobs list --queue q` lists them"),
        ("jobs list a --address http://head:8265", "`codecfleet jobs show a --address http://head:8265` shows one job"),
        ("jobs cancel", "needs a job's id"),
        ("jobs list films", "jobs unfinished films"),
        ("jobs show j --follow", "--follow applies only to `jobs logs`"),
        ("jobs logs j --follow --json", "--follow applies only to `jobs logs`"),
        ("jobs priority j", "needs a number"),
        ("jobs show j 5", "needs a number"),
        ("jobs priority j high", "N"),
        ("jobs retry j --address http://head:8265", "applies to a queue"),
        ("jobs clean films --address http://head:8265", "takes no --queue or --address"),
        ("jobs list --queue q --address http://head:8265", "--queue and --address"),
        ("tenants", "list|policy|token|revoke"),
        ("tenants show", "list, policy"),
        ("tenants list a", "takes no name"),
        ("tenants token", "needs NAME"),
        ("tenants policy", "needs FILE"),
        ("usage --by node", "tenant or job"),
        ("usage --since yesterday", "--since"),
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
    """The line names the invalid argument."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert run(line.split(), NOTHING) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert named in said.err
