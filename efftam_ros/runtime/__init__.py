"""The back ends: pipelines that run the network on a CPU or a GPU."""
