"""Two processes of a worker use one GPU: both decode exactly, and they end together."""

import json
import signal
from pathlib import Path

import pytest

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, decode_range
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.worker.host import FENCED_CODE
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .scenario import Scenario, machine
from .simulated_driver import needs, run_simulated

pytestmark = needs("PyNvVideoCodec")


def test_the_second_process_decodes_as_the_first_does_and_its_end_is_the_workers(tmp_path: Path) -> None:
    """When the first process is full, further work runs in the second, on the same GPU, with the same pictures.

    If the second process is killed, the worker ends, and callers see the worker's death.
    """
    source = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(12)))
    plan = plan_transcode(TranscodeSpec(source=str(source), output="out.mkv", force=True))
    decoded = decode_range(plan.work("j", 0, 0, 0).decode, DecodeTally(), SOFTWARE)
    wanted = [picture_hash(ticks, picture).digest.hex() for ticks, picture in decoded]
    program = "import sys; from tests.driver_sim.second_works import main; main(*sys.argv[1:])"
    answer = tmp_path / "answer.json"
    arguments = [str(source), str(tmp_path / "gate"), str(answer)]
    ran = run_simulated(program, Scenario(machine=machine("l4-x4")), visible_devices="0", arguments=arguments)
    told = json.loads(answer.read_text(encoding="utf-8"))
    assert told["errors"] == []
    (first, *_), *there = told["decoded"]
    assert first == told["pid"]
    assert first not in {pid for pid, _ in there}
    assert all(hashes == wanted for _, hashes in told["decoded"])
    assert told["held"] == [first]
    assert told["frames_done"] == 3 * len(wanted)
    assert ran.exit_code == FENCED_CODE
    assert "second process of this GPU's worker: it was killed by SIGKILL" in ran.stderr


@pytest.mark.parametrize(("what", "code"), swept([("killed", -signal.SIGKILL), ("asked", FENCED_CODE)]))
def test_a_second_process_that_hangs_ends_with_the_first(tmp_path: Path, what: str, code: int) -> None:
    """If a call holds the second process, the worker notices the silence and ends; no process stays on its GPU.

    Before that, an interrupt from the terminal does not end the process, which imports no modules from its working
    folder.
    """
    (tmp_path / "av.py").write_text("raise ImportError", encoding="utf-8")
    program = "import sys; from tests.driver_sim.second_works import seize; seize(*sys.argv[1:])"
    simulated, arguments = Scenario(machine=machine("l4-x4")), [str(tmp_path), what]
    ran = run_simulated(program, simulated, visible_devices="0", arguments=arguments, timeout_s=30)
    # The second process holds the same standard error, so a reader waits for the end of both.
    assert ran.exit_code == code, ran.stderr
    assert (tmp_path / "told").exists()
    assert what == "killed" or "it was silent for" in ran.stderr
