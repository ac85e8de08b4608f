"""The operator's page: live pictures with the target's box in a browser, and selection on them."""
