"""What is in a container: opening, demuxing, streams, times, and the values that describe them."""
