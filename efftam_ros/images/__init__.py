"""Every form in which a picture arrives, as an `Image`; and what is seen of the camera in it."""
