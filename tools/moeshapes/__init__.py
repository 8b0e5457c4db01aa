"""Declare, generate, check and verify AITER fused-MoE configuration rows."""

__version__ = "0.1.0"
