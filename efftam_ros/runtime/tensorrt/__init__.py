"""TensorRT: engine keys, store and runner."""
