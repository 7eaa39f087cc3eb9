"""Floor 2: what the machines can do, and where work goes."""
