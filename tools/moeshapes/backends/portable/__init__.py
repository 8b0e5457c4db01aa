"""The `portable` backend: two-stage fused-MoE Triton kernels, for NVIDIA and AMD GPUs and Triton's interpreter."""
