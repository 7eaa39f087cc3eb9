"""The commands about where work runs: fleets that are kept up."""
