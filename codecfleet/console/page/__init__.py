"""A batch as a page: one HTML file that needs no other."""

from .layout import batch_page

__all__ = ["batch_page"]
