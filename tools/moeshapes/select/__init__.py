"""Choosing among a tuner's candidates by the verifier: the fastest that is right under every declared use."""
