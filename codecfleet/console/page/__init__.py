"""A batch's report page: one self-contained HTML file."""

from .layout import batch_page

__all__ = ["batch_page"]
