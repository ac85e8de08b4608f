"""TensorRT and TensorRT-RTX: engine keys, store and runner."""
