"""Fragmented mp4, read in part: its head, and the fragments that one range lies in.

FFmpeg looks at every fragment's table when it opens such a file, unless one index at its beginning has them all. Who
has read the whole file knows where each fragment begins, so a worker's demuxer is shown a file in which a box that is
skipped stands for the fragments before its range, and which ends behind it. No packet changes its place.
"""

from .part import FILLER_BYTES, FilePart, Fragments
from .spliced_file import SplicedFile
from .watch import FragmentWatch

__all__ = ["FILLER_BYTES", "FilePart", "FragmentWatch", "Fragments", "SplicedFile"]
