"""Floor 1: sessions on one device. Media in, media out; it knows nothing of clusters or jobs."""
