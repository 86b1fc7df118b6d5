"""Faster ways to compute single nodes, by instruction set: packed weights, proved conditions, a kernel each."""
