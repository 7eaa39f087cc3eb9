"""Places work on devices: demands, inventory, rates, policy, and a function that combines them."""
