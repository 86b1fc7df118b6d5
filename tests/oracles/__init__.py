"""Other programs that say what an int8 model computes, and a writer of small models to ask them about."""
