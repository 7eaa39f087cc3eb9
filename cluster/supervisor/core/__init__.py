"""What a supervisor decides: pure functions over its state."""
