"""Floor 1: sessions on one device. Takes media and returns media; knows nothing of clusters or jobs."""
