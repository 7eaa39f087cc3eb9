"""Fragmented mp4, read in part: its head, and the fragments that contain one range.

FFmpeg would read every fragment's table on opening, so it is shown one box to skip in place of the earlier ones.
"""

from .part import FILLER_BYTES, FilePart, Fragments
from .spliced_file import SplicedFile
from .watch import FragmentWatch

__all__ = ["FILLER_BYTES", "FilePart", "FragmentWatch", "Fragments", "SplicedFile"]
