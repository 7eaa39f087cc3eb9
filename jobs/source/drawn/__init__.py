"""An overlay or subtitle track that is drawn into the pictures, read in full before any work."""
