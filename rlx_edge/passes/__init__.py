"""Graph -> Graph, one file a pass. Every pass keeps the meaning and gives a verified graph."""
