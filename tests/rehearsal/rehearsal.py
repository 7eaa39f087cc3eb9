"""A rehearsal from submitting to the last check."""

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from codecfleet import Queue
from tests.integration.test_queue import until
from tests.queue_cluster import HEAD, NODES, Cluster, cluster

from .checks import POLICY, Tenants, left_files, wrong_costs, wrong_ends
from .faults import Fault, Faults
from .watch import Watch
from .work import SHARES, Wanted, batch, endings, make_clips, poisoned, submit, transcodes

DONE_S = 3600.0
GONE_S = 20.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rehearse."""

    jobs: int  #: transcode jobs
    media: Path | None = None  #: a folder of films; None for small clips
    logs: Path | None = None  #: a folder for the nodes' logs
    cpus: int = 1  #: of each node
    jobs_at_once: int = 2  #: of each node


def rehearse(plan: Plan, say: Callable[[str], object] = str) -> dict[str, Any]:
    """Run a rehearsal; return its result, whose ``problems`` is empty if everything was as promised.

    ``say`` is called with a line for each step.
    """
    began_s = time.monotonic()
    sizes = {"jobs_at_once": plan.jobs_at_once, "cpus": plan.cpus}
    with cluster(keeps=True, **sizes, XDG_STATE_HOME="/dev/null", XDG_CONFIG_HOME="/dev/null") as found:
        temporary = found.here.folder / "tmp"
        temporary.mkdir()
        found.here.variables["TMPDIR"] = str(temporary)
        try:
            result = asyncio.run(_Rehearsal(plan, found, temporary, say).run())
        finally:
            if plan.logs is not None:
                plan.logs.mkdir(parents=True, exist_ok=True)
                for path in found.here.folder.glob("*.log"):
                    shutil.copy(path, plan.logs)
    return {
        "jobs": plan.jobs,
        "media": str(plan.media or "made"),
        "cpus_each_node": plan.cpus,
        "jobs_at_once_each_node": plan.jobs_at_once,
        **result,
        "wall_s": round(time.monotonic() - began_s),
    }


class _Rehearsal:
    def __init__(self, plan: Plan, found: Cluster, temporary: Path, say: Callable[[str], object]) -> None:
        self._say = say
        self._plan = plan
        self._cluster = found
        self._temporary = temporary
        self._outputs = found.here.folder / "out"

    async def run(self) -> dict[str, Any]:
        wanted = self._work()
        self._say("each distinct job has run alone")
        for address in (HEAD, *NODES):
            await self._cluster.start(address)
        self._say("the cluster is up")
        tokens = self._tokens()
        async with Queue(self._cluster.queue) as queue:
            watch = Watch(queue, self._outputs)
            self._submit(wanted, tokens)
            self._say(f"{len(wanted)} jobs are submitted")
            faults = Faults(self._cluster, watch, self._say)
            async with asyncio.timeout(DONE_S), asyncio.TaskGroup() as group:
                group.create_task(watch.run())
                group.create_task(faults.run(len(wanted)))
            done_s = watch.now_s
            await faults.count()
            tenants = Tenants(watch, wanted, self._plan.jobs_at_once)
            await tenants.look(queue)
            problems = [*wrong_ends(wanted, watch.jobs), *wrong_costs(faults.struck, faults.missed), *tenants.problems]
        killed = sum(each.fault in (Fault.NODE_KILLED, Fault.HEAD_KILLED) for each in faults.struck)
        problems += [*await self._end(), *left_files(self._outputs, wanted, self._temporary, killed)]
        return {
            "faults": [each.to_json() for each in faults.struck],
            "tenants": tenants.rows,
            "fairness": tenants.fairness,
            "done_s": round(done_s),
            "problems": problems,
        }

    def _work(self) -> list[Wanted]:
        folder = self._cluster.here.folder
        films = make_clips(folder / "films", self._plan.jobs) if self._plan.media is None else _films(self._plan.media)
        ended = endings(self._cluster.here, films)
        self._outputs.mkdir()
        jobs = [*transcodes(films, ended, self._outputs, self._plan.jobs)]
        return [poisoned(self._outputs), *jobs, batch(films, ended, self._outputs / "batch")]

    def _tokens(self) -> dict[str, Path]:
        """Give the queue its policy, and each tenant a token; return the tokens' files."""
        policy = self._cluster.here.folder / "policy.toml"
        policy.write_text(POLICY)
        self._run("tenants", "policy", str(policy))
        tokens = {}
        for tenant in SHARES:
            tokens[tenant] = self._cluster.here.folder / f"{tenant}.token"
            tokens[tenant].write_text(self._run("tenants", "token", tenant))
        return tokens

    def _run(self, command: str, *arguments: str) -> str:
        ran = self._cluster.here.run(command, "--queue", self._cluster.queue, *arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def _submit(self, wanted: Sequence[Wanted], tokens: dict[str, Path]) -> None:
        for tenant, token in tokens.items():
            own = [job for job in wanted if job.tenant == tenant]
            submit(self._cluster.here, self._cluster.queue, token, own)

    async def _end(self) -> list[str]:
        """End the cluster by SIGTERM, the head last; return what is wrong with its end."""
        problems = []
        for address in (*NODES, HEAD):
            program = self._cluster.terminate(address)
            if code := await asyncio.to_thread(program.wait, 120):
                problems.append(f"the node {address} ended with {code}")
        try:
            await until(lambda: not self._cluster.here.processes(), GONE_S)
        except TimeoutError:
            problems += [f"a process is left: {_words(each)}" for each in self._cluster.here.processes()]
        return problems


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:6])
    except psutil.Error:
        return str(process.pid)


def _films(folder: Path) -> list[Path]:
    return sorted(path.resolve() for path in folder.rglob("*") if path.is_file())


def tables(result: dict[str, Any]) -> str:
    """Return the tables of a result."""
    lines = ["| fault | jobs hit | back after, s | one job went on after, s | all after, s | segments again, of |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    for row in result["faults"]:
        times = [row[name] for name in ("victims", "back_after_s", "first_progress_after_s", "all_progress_after_s")]
        costs = f"{row['redone']} of {row['redone_allowed']}"
        lines.append(f"| {' | '.join(map(str, [row['fault'], *times, costs]))} |")
    lines += ["", *(json.dumps(row) for row in result["tenants"]), json.dumps(result["fairness"])]
    return "\n".join(lines)
