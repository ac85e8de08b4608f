"""Follow one target through a camera stream: mask, box and velocity for every image.

Kept free of imports so that the parts without ROS (core, runtime, tools) import anywhere. The generated
message modules live beside this file once the package is built; extending the path lets both halves be
found when the checkout comes first on ``sys.path``.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
