"""One picture decoded or encoded, to see whether a codec works."""
