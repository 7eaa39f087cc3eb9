"""The states of a job's segments, and the loop that advances them."""
