"""What the scheduler sees of a cluster, in a file: `take` asks for it, `slim` leaves out what nobody decides by, `anonymous` hides
the names, and `file` writes and reads it."""
