"""What AITER's fused_moe does with a call: the row that it finds, and the kernels that it really runs."""
