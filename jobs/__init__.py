"""Floor 3: jobs, which plan, fan out over workers, join the results and prove them."""
