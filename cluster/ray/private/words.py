"""Phrases that identify messages and reports of Ray. If Ray changes a phrase, an error message becomes less clear.

Ray is not imported here.
"""

import re
from typing import Final

NEVER_BEGAN: Final = "an error raised in its creation task"
"""In the first line of Ray's message about a failed constructor; an indented traceback and the error follow."""
TOKEN_REFUSED: Final = "InvalidAuthToken"  # noqa: S105 - Ray's wording, not a secret
"""The answer of a cluster to a wrong token."""
NO_CLUSTER_ID: Final = "Failed to get cluster ID"
"""The message of a client if the other side is not Ray's control service, or does not answer."""
LAST_LOGS: Final = ", last available logs"
"""The text that precedes the program's last output in Ray's message about a failed job."""
NOT_FOUND: Final = "status code 404"  #: Part of a message about an unknown job, from the job server's client
FROM_CPP: Final = re.compile(r"^\[.*? ([CE]) \d+ \d+\] (?:\(\w+\) )?(?!logging\.cc)\S+:\d+:\s*(\S.*)", re.MULTILINE)
THROWN_IN_CPP: Final = re.compile(r"Unhandled exception: .*? (what\(\): .*?)(?: /\S+ \[\w+\])?$", re.MULTILINE)
AGENT_FAILED: Final = re.compile(r"one Ray agent failed, agent_name = (\w+)")
FROM_PYTHON: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
"""Lines in Ray's logs that say why one of Ray's processes ended."""
