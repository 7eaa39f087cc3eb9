"""Sessions by packet: a decoder and an encoder for callers who have packets, or want them."""
