"""Fragmented mp4, read in part: its head, and the fragments that one range lies in.

FFmpeg would look at every fragment's table on opening. So a worker's demuxer sees a skipped box for the fragments ahead
of its range, and the file's end after it; no packet changes its place.
"""

from .part import FILLER_BYTES, FilePart, Fragments
from .spliced_file import SplicedFile
from .watch import FragmentWatch

__all__ = ["FILLER_BYTES", "FilePart", "FragmentWatch", "Fragments", "SplicedFile"]
