"""Places work on devices: demands, inventory, rates, policy, and a pure function of them."""
