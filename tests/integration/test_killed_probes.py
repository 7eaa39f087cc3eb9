"""A process that is killed while one of its probes hangs, for example in a driver."""

import socket
import subprocess
import sys

HANGS = """
import asyncio, sys, urllib.request
from codecfleet.cluster.probes.child.child import run_in_child
asyncio.run(asyncio.to_thread(run_in_child, urllib.request.urlopen, {"url": sys.argv[1]}, 600))
"""
LIMIT_S = 20


def test_a_hung_probe_ends_with_the_process_that_asked() -> None:
    """If hung probes stayed, each short job on a machine with a hanging driver would leave a process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LIMIT_S)
        command = [sys.executable, "-c", HANGS, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(command, env={"PYTHONPATH": ":".join(sys.path)}) as asker:
            probe, _ = silent.accept()
            asker.kill()
    with probe:
        probe.settimeout(LIMIT_S)
        while probe.recv(1 << 16):  # the probe's request, then the end of its connection
            pass
