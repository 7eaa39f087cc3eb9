"""Plain process fan-out: run the commands of a job file, several at a time, then the command that joins their outputs.

Run as a separate program (``python -I -S fan_out.py JOB.json``), so that all of it is measured, as in the
other contenders.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def main(job_path: str) -> int:
    """Run the job; return the exit code of the first failed command, or 0. A failure skips the join."""
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    with ThreadPoolExecutor(job["in_flight"]) as pool:
        codes = list(pool.map(_run, job["parts"]))
    return next((code for code in codes if code != 0), 0) or _run(job["join"])


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
