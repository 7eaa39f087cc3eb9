"""Floor 3: what a user runs: plan, fan out, gather, prove."""
