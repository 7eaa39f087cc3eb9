"""Judging a machine: findings, and the lines that print them."""
