"""``python -m codecfleet``: the same program as ``codecfleet``."""

import sys

from .cli.app import main

sys.exit(main())
