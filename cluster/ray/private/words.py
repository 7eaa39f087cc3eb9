"""Phrases that identify Ray's messages and reports; if Ray changes a phrase, an error message is less clear.

Ray is not imported here.
"""

import re
from typing import Final

NEVER_BEGAN: Final = "an error raised in its creation task"
"""Ray's message about a failed constructor: this line, an indented traceback, and the error."""
TOKEN_REFUSED: Final = "InvalidAuthToken"  # noqa: S105 - Ray's wording, not a secret
"""A cluster's answer to a wrong token."""
NO_CLUSTER_ID: Final = "Failed to get cluster ID"
"""A client's message if the other side is not Ray's control service, or does not answer."""
LAST_LOGS: Final = ", last available logs"
"""In Ray's message about a failed job, this precedes the program's last output."""
NOT_FOUND: Final = "status code 404"  #: Part of the message of the job server's client about an unknown job
FROM_CPP: Final = re.compile(r"^\[.*? ([CE]) \d+ \d+\] (?:\(\w+\) )?(?!logging\.cc)\S+:\d+:\s*(\S.*)", re.MULTILINE)
THROWN_IN_CPP: Final = re.compile(r"Unhandled exception: .*? (what\(\): .*?)(?: /\S+ \[\w+\])?$", re.MULTILINE)
AGENT_FAILED: Final = re.compile(r"one Ray agent failed, agent_name = (\w+)")
FROM_PYTHON: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
"""Lines of Ray's logs that say why one of Ray's processes ended."""
