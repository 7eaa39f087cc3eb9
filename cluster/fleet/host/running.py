"""The running host: a pool, served over the inherited socket until the client closes it or is gone."""

import asyncio
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable

from ...parent_death import end_with
from ...process.wire import Channel
from ..client_name import ClientName
from ..leases.connected_pool import ConnectedPool
from ..serving import BEAT_S, PoolServer


def serve(pool_of: Callable[..., ConnectedPool]) -> None:
    """Run ``[descriptor, client's process and program, address, slots, dlas, [fleet, number]]``: JSON, one argument."""
    descriptor, client, program, address, slots, dlas, name = json.loads(sys.argv[1])
    end_with(client)
    pool = pool_of(address, slots, dlas=dlas, name=ClientName(*name))
    end_with_ray(pool.lost)
    # Ray's workers look for modules beside the program, as if Ray were in the client.
    sys.argv[:] = program
    code = 1
    try:
        asyncio.run(PoolServer(Channel(socket.socket(fileno=descriptor)), pool, pool.lost).run())
        code = 0
    except BaseException:  # noqa: BLE001 - the last line is told to the user
        traceback.print_exc()
    # The interpreter's own exit would wait for threads, and for a Ray that may be gone.
    sys.stdout.flush()
    os._exit(code)


def end_with_ray(lost: Callable[[], str], last_act: Callable[[], object] = bool) -> None:
    """Have this process end once its Ray is gone, after ``last_act``; the event loop may hang in Ray for a minute."""

    def watch() -> None:
        while not (reason := lost()):
            time.sleep(BEAT_S)
        print(reason, file=sys.stderr, flush=True)  # noqa: T201 - the last line is told to the user
        last_act()
        os._exit(1)

    threading.Thread(target=watch, name="codecfleet-watch", daemon=True).start()
