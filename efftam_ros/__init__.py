"""Tracks one target through a camera stream: mask, box and velocity for every image.

Has no imports, so that the parts without ROS can be imported without it. Generated message modules are
installed in a package of the same name; extending the path finds them also when the checkout comes first on
``sys.path``.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
