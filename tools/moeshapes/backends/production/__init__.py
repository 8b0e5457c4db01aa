"""The production backend: AITER's own `fused_moe` on the GPU that a row is for."""
