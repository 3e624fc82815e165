"""The newest version that may be delivered."""

__all__ = ["Watermark"]


class Watermark:
    """The one publication point of a log: only versions up to ``visible`` may be delivered.

    Only the holder of the publish gate advances it, and it never moves back. Reading it takes no lock.
    """

    __slots__ = ("visible",)

    def __init__(self, visible: int) -> None:
        self.visible: int = visible

    def advance(self, version: int) -> None:
        """Makes every version up to ``version`` visible; a lower one changes nothing. The caller holds the publish gate."""
        self.visible = max(self.visible, version)
