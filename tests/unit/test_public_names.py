"""The public names of ``codecfleet``, as a notebook completes them."""

import subprocess
import sys


def test_dir_shows_every_public_name_and_imports_none() -> None:
    """``dir`` shows all public names, even those that were not used yet."""
    program = "import sys, codecfleet; print(dir(codecfleet) == sorted(codecfleet.__all__), 'av' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
