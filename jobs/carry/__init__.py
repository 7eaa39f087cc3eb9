"""Which tracks, tags and values an output keeps."""
