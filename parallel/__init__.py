"""How the model is split over devices. Nothing is here yet."""
