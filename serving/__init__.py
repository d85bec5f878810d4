"""Adapters by which inference engines run the model. Nothing is here yet."""
