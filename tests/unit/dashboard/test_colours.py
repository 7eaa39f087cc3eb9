"""The colours of the page's timeline, from the script of the page."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

_SCRIPT = """
const matchMedia = () => ({ matches: false }); let fleet = { titles: { j1: "film.mkv" }, timeline: [] };
%s
const shown = (jobs) => {
  fleet.timeline = [{ pieces: jobs.map((job) => [0, 1, 2, job, "segment 1", "done"]) }];
  number();
  return Object.fromEntries(jobs.map((job) => [job, JSON.stringify(paint(job, false))]));
};
const jobs = Array.from({ length: 200 }, (_, n) => `j${n}`);
console.log(JSON.stringify([shown(jobs), shown(jobs.slice(7, 9)), shown([...jobs.slice(7, 9), "new"]), named("j1")]));
"""


def answer() -> Any:
    """Run the part of the script that gives colours and names; skip the test if no program can run it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node; Debian's package is nodejs")
    page = files("codecfleet.dashboard").joinpath("page.html").read_text(encoding="utf-8")
    part = re.search(r"const numbers = new Map\(\).*?(?=const rows = new Map)", page, re.DOTALL)
    assert part is not None
    done = subprocess.run([node, "-e", _SCRIPT.replace("%s", part[0])], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_no_two_jobs_have_one_colour() -> None:
    """All jobs have different colours, however many they are, and a job keeps its colour while others come and go."""
    many, two, three, name = answer()
    assert len(set(many.values())) == len(many) == 200
    assert {job: many[job] for job in two} == two
    assert {job: three[job] for job in two} == two
    assert len(set(three.values())) == 3
    assert name == "film.mkv"
