"""The policy that flies, and what any other policy has to offer."""
