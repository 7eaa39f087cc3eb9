"""The values of placement: demand, inventory, policy, placement."""
