"""Commands that make something of single pictures."""
