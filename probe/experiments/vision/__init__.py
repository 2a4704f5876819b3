"""Vision encoders: their blocks, places and masks, and the way of an image into the text model."""
