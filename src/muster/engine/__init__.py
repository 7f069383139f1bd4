"""One cycle, pure: a world and a policy in, an outcome out. No clock, no network, no chance."""
