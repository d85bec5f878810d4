"""Training of the model. Nothing is here yet."""
