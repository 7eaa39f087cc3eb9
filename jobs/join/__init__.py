"""One exact file: gather, side tracks, times, proof, publish."""
