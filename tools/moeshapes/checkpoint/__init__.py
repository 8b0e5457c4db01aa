"""One MoE layer of a real checkpoint: found in sharded safetensors, sliced for a rank, in the form of a workload."""
