"""A program that submits jobs and ends: ``python -m tests.rehearsal.client QUEUE TOKEN_FILE``, the jobs on stdin."""

import asyncio
import json
import sys
from pathlib import Path

from codecfleet import Queue


async def main() -> None:
    """Submit each ``[id, arguments]``."""
    place, token_file = sys.argv[1:]
    token = await asyncio.to_thread(Path(token_file).read_text, encoding="utf-8")
    async with Queue(place) as queue:
        for job_id, arguments in json.load(sys.stdin):
            await queue.submit(arguments, job_id=job_id, token=token)


if __name__ == "__main__":
    asyncio.run(main())
