"""What a supervisor tells about its cluster."""
