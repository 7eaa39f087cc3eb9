"""The report page of a batch: one self-contained HTML file."""

from .layout import batch_page

__all__ = ["batch_page"]
