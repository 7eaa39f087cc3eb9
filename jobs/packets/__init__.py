"""``Decoder`` and ``Encoder``: sessions for callers who have packets, or want them."""
