"""Certificates of parity: all that a comparison rests on in one zip file, and what can be checked of it later."""
