"""Kinds that a graph can hold, but that nothing here executes: they are declared, checked, printed and saved."""
