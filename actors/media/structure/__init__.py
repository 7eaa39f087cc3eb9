"""The structure of files: the boxes of mp4 and mov, the elements of Matroska, and changes to a finished file."""

from .finished import Change, change_finished
from .isobmff import LONG, LONG_HEAD_BYTES, box_length, boxes, descendant, tracks_of_movie
from .matroska import HEADER, SEGMENT, elements, in_segment
from .sections import NO_END, Read, Readable, Section, content, first, reader_of

__all__ = [
    "HEADER",
    "LONG",
    "LONG_HEAD_BYTES",
    "NO_END",
    "SEGMENT",
    "Change",
    "Read",
    "Readable",
    "Section",
    "box_length",
    "boxes",
    "change_finished",
    "content",
    "descendant",
    "elements",
    "first",
    "in_segment",
    "reader_of",
    "tracks_of_movie",
]
