"""Kubernetes: API objects in, model values out. `decode.Decoder` is the door."""
