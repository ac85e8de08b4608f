"""Playing bags and frames into a running tracker."""
