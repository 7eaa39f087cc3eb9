"""Networks run over a segment's pictures."""
