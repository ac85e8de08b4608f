"""A rendered flight as a process: camera, vehicle and ground station for the real nodes."""
