"""How to compute: pipelines that run the network on a device."""
