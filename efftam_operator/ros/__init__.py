"""The operator's page as a node beside the tracker."""
