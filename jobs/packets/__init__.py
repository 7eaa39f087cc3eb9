"""``Decoder`` and ``Encoder``: sessions that take or return packets."""
