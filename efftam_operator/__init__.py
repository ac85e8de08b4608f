"""The operator's page: a browser shows live images with the targets' boxes, and the user selects on them."""
