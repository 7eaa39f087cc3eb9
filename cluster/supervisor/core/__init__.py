"""The supervisor's decisions: pure functions over its state."""
