"""Floor 1: sessions on one device. This floor turns media into media, and knows nothing of clusters or jobs."""
