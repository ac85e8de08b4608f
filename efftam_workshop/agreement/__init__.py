"""How far a graph that was converted or built is from the same graph in FP32 on the CPU."""
