"""INT8 graphs: calibration and quantisation of the large products."""
