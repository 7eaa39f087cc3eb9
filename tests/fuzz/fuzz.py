"""Mutated films through probe, plan, transcode and verify: each ends in exact output or in one line.

``make fuzz`` runs it. Each case is one seed: ``make fuzz FUZZ="--seed 17 --cases 1"`` plays case 17 again. Findings are
kept in ``fuzz-output/SEED``: the mutated film, and what each command said. The exit code is 1 if there are any.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar, Final

ROOT: Final = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from tests.fuzz.corpus import footage, own_clips  # noqa: E402 - after the path
from tests.fuzz.mutations import mutated  # noqa: E402
from tests.fuzz.sandbox import Ending, play  # noqa: E402
from tests.fuzz.verdicts import Outcome, judge  # noqa: E402

OUTPUTS: Final = ("mp4", "mkv", "mov", "ts", "mp4", "mkv")
_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Case:
    """One mutated film and what came of it."""

    seed: int
    film: str
    mutation: str
    outcome: Outcome
    detail: str
    ending: Ending


def play_case(seed: int, corpus: dict[str, bytes], keep: Path | None) -> Case:
    """Play the case of ``seed``; a finding is kept in ``keep``."""
    name, mutation, data = mutated(seed, corpus)
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    options = ["--codec=h264", "--preset=7"]
    options += chance.choice(([], [], [], ["--segment-seconds=0.4"], ["--start=0.3"], ["--end=0.7"]))
    with tempfile.TemporaryDirectory(prefix="cf-fuzz-") as folder:
        source = Path(folder) / f"in{Path(name).suffix}"
        source.write_bytes(data)
        ending = play(source, Path(folder) / f"out.{chance.choice(OUTPUTS)}", tuple(options))
        outcome, detail = judge(ending)
        if outcome.is_finding and keep is not None:
            shutil.copytree(folder, keep / str(seed), dirs_exist_ok=True)
            (keep / str(seed) / "ending.json").write_text(json.dumps(asdict(ending), indent=1))
    return Case(seed, name, mutation, outcome, detail, ending)


class Player:
    """Plays cases in processes that are forked from this one, and that therefore have the corpus already."""

    corpus: ClassVar[dict[str, bytes]] = {}
    keep: ClassVar[Path | None] = None
    until_s: ClassVar[float] = float("inf")

    @classmethod
    def play(cls, seed: int) -> Case | None:
        """Play the case of ``seed``; None if time is up, by the monotonic clock."""
        return None if time.monotonic() > cls.until_s else play_case(seed, cls.corpus, cls.keep)


def load_corpus(*, own_only: bool, only: str) -> dict[str, bytes]:
    """Return the films to mutate, by name; ``only`` is a pattern of names."""
    with tempfile.TemporaryDirectory(prefix="cf-fuzz-") as folder:
        films = [*own_clips(Path(folder)), *(() if own_only else footage())]
        return {path.name: path.read_bytes() for path in films if fnmatch(path.name, only)}


def lines_of(cases: Sequence[Case]) -> list[str]:
    """Return the table: outcomes, refusals by their words, and every finding."""
    outcomes = Counter(case.outcome for case in cases)
    lines = [f"{count:6d}  {outcome.value}" for outcome, count in outcomes.most_common()]
    refusals = Counter(case.detail for case in cases if case.outcome is Outcome.REFUSED)
    lines += ["", "refused:", *(f"{count:6d}  {gist[:_SHOWN]}" for gist, count in refusals.most_common())]
    findings = [case for case in cases if case.outcome.is_finding]
    lines += ["", f"findings: {len(findings)}"]
    return [*lines, *(finding_line(case) for case in findings)]


def finding_line(case: Case) -> str:
    """Return a finding in one line."""
    return f"  seed {case.seed}: {case.outcome.value}: {case.film}, {case.mutation}: {case.detail[: 2 * _SHOWN]}"


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the cases; return 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--cases", type=int, default=200, help="how many")
    parser.add_argument("--own", action="store_true", help="mutate our own clips only")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="mutate films of these names only")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="how many at the same time")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no case after this many seconds")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-output"), help="where findings are kept")
    asked = parser.parse_args(arguments)
    began_s = time.monotonic()
    Player.corpus = load_corpus(own_only=asked.own, only=asked.only)
    Player.keep, Player.until_s = asked.keep, began_s + asked.limit_s
    cases = []
    with get_context("fork").Pool(asked.at_once) as pool:
        for case in pool.imap_unordered(Player.play, range(asked.seed, asked.seed + asked.cases)):
            cases += [case] if case is not None else []
            if case is not None and case.outcome.is_finding:
                say(finding_line(case))
    say(f"{len(cases)} cases of {len(Player.corpus)} films in {time.monotonic() - began_s:.0f} s")
    say("\n".join(lines_of(cases)))
    return int(any(case.outcome.is_finding for case in cases))


if __name__ == "__main__":
    sys.exit(main())
