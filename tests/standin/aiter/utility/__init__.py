"""Part of the stand-in for AITER: see tests/standin/README.md."""
