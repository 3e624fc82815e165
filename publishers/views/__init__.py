"""What a subscriber sees of a change: content, images, projections and masks."""

from publishers.views.masking import Drop, Hash, Mask, Partial, Redact
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, Lens, View

__all__ = [
    "Content",
    "Drop",
    "Hash",
    "Images",
    "Integers",
    "Lens",
    "Mask",
    "Partial",
    "Projection",
    "Redact",
    "View",
]
