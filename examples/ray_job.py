"""A script for a Ray cluster: the job server starts it on the cluster, and its segments run on all nodes.

ray job submit --address http://head:8265 --working-dir . -- python examples/ray_job.py /films/in.mkv /films/out.mp4

Every node must see the input under the same name: a shared folder, or an address such as s3://bucket/in.mkv. With the
checkout as --working-dir the nodes need only codecfleet's dependencies. Without a cluster, a private Ray runs all work.
"""

import argparse
import asyncio
import json

from codecfleet import CodecfleetError, Done, Fleet, TranscodeSpec


async def convert(source: str, output: str, workers: int | None) -> None:
    """Transcode ``source``, and print every event as a line of JSON, for the job's log."""
    spec = TranscodeSpec(source=source, output=output, overwrite=True)
    # No address: inside a Ray job, the environment names the cluster.
    async with Fleet(workers=workers) as fleet:
        job = await fleet.transcode(spec)
        async for event in job.events():
            if not isinstance(event, Done):
                print(json.dumps(event.to_json()), flush=True)
        print((await job).model_dump_json())


def main() -> None:
    """Read the command line; the job's exit code shows the kind of error, if any."""
    parser = argparse.ArgumentParser(description="Transcode one file on the cluster this script runs on.")
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--workers", type=int, help="segments in flight; default: one per CPU of the cluster")
    arguments = parser.parse_args()
    try:
        asyncio.run(convert(arguments.source, arguments.output, arguments.workers))
    except CodecfleetError as error:
        print(error)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
