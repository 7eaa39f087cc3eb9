"""The code that the documents show, run as it stands."""

import runpy
import sys
from pathlib import Path

import pytest
from markdown import REPOSITORY, Block, blocks, documents
