"""``frames``: a video's pictures as arrays and tensors."""
