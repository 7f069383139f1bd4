"""A scheduler of a real cluster as a process of its own: `process` is its life, `turns` are its cycles."""
