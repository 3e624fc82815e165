"""What one frame of the log is in memory, and what is made from it once for everybody."""

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice

__all__ = ["Block", "Slice"]
