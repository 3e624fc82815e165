"""What a subscriber sees of a change: content, images, projections and masks."""
