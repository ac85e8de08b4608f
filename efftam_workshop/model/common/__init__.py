"""Parts shared by all network families."""
