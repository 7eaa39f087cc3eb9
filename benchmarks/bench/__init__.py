"""The parts of the benchmarks: contenders, measurements and tables.

If codecfleet is not installed, these modules and their child programs import it from this checkout.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("codecfleet") is None:
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), sys.path[-1]]))
