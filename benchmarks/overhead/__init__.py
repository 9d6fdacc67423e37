"""What a middleware adds to a model call."""
