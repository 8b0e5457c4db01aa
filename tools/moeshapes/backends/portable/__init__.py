"""The `portable` backend: two-stage fused-MoE Triton kernels that run on NVIDIA and AMD GPUs, and in Triton's interpreter."""
