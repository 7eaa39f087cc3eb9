"""Words of Ray's messages and reports by which something is recognised: where they differ, a line is less clear.

Ray is not imported here.
"""

import re
from typing import Final

NEVER_BEGAN: Final = "an error raised in its creation task"
"""How Ray reports a failed constructor: an address, an indented traceback, and then the error."""
TOKEN_REFUSED: Final = "InvalidAuthToken"  # noqa: S105 - a word of Ray's
"""What a cluster says to one with another token; without it, that it did not let us in."""
NO_CLUSTER_ID: Final = "Failed to get cluster ID"
"""What a client says that asked something which is not Ray's control service, or a silent one."""
LAST_LOGS: Final = ", last available logs"
"""How Ray's message about a failed job goes on with what its program printed last."""
NOT_FOUND: Final = "status code 404"  #: What the job server's client says of a job that is not there
FROM_CPP: Final = re.compile(r"^\[.*? ([CE]) \d+ \d+\] (?:\(\w+\) )?(?!logging\.cc)\S+:\d+:\s*(\S.*)", re.MULTILINE)
THROWN_IN_CPP: Final = re.compile(r"Unhandled exception: .*? (what\(\): .*?)(?: /\S+ \[\w+\])?$", re.MULTILINE)
AGENT_FAILED: Final = re.compile(r"one Ray agent failed, agent_name = (\w+)")
FROM_PYTHON: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
"""Lines of Ray's logs that say why one of its processes ended."""
