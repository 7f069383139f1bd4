"""The only mutable things: what was seen, what is placed where, and the figures that follow from it."""
