"""What a job draws into the pictures: an overlay, or a subtitle track; read as a whole before any work."""
