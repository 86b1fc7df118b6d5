"""From an int8 graph to a C bundle: legalize, lower, plan memory, pack weights, emit."""
