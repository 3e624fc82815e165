"""Views: the content, images, projections and masks with which a subscriber sees a change."""
