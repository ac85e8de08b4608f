"""The node `efftam_camera`: a stream or device as images with stamps and calibration."""
