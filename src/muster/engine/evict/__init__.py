"""Making room: whom to ask to leave, for whom, and nobody more than needed. One search serves every evicting action."""
