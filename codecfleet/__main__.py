"""``python -m codecfleet``: the same program as ``codecfleet``."""

import sys

from .cli import main

sys.exit(main())
