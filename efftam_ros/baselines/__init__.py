"""PyTorch pipelines that `efftam bench` compares the back ends with."""
