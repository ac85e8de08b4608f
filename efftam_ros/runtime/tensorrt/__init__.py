"""The back end that uses TensorRT: keys of engines, the folder that stores them, and running them."""
