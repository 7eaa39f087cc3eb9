"""What a supervisor knows."""
