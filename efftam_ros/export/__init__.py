"""From a checkpoint to an ONNX bundle that the runtime loads."""
