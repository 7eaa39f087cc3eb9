"""What a job draws into the pictures, an overlay or a subtitle track: read in full before any work."""
