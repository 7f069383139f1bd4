"""Named workloads with bars: how fast Muster decides, on this machine, now."""
