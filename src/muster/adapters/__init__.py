"""The outside: each adapter translates between the model and one world, and decides nothing."""
