"""A whole machine probed: one report."""
