"""What the benchmarks are made of: contenders, their measurement, and the tables."""
