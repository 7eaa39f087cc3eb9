"""Where work goes: demands, inventory, rates, policy, and the pure function that joins them."""
