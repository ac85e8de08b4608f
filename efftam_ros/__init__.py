"""Tracks one target through a camera stream: mask, box and velocity for every image.

Has no imports, so that the parts without ROS can be imported without it. Generated message modules are
installed in a package of the same name; extending the path finds them also when the checkout comes first on
``sys.path``.
"""

import os
from pkgutil import extend_path

# onnxruntime 1.31 writes a device id into the user's cache and reports to its vendor from its first import
# on; switching that off afterwards is too late. Whoever wants it sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
