"""Pictures of a video as arrays."""
