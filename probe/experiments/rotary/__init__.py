"""Positions: how queries and keys turn, and positions that enter by another way."""
