"""The node `efftam_operator`, which serves the operator's page of one tracker."""
