"""An overlay or a subtitle track to draw into the pictures, read in full before any work."""
