"""The newest version that may be delivered."""

__all__ = ["Watermark"]


class Watermark:
    """The one publication point of a log: what is at or below ``visible`` may be delivered, nothing else.

    It only moves forward, by the holder of the publish gate. Reading it takes no lock.
    """

    __slots__ = ("visible",)

    def __init__(self, visible: int) -> None:
        self.visible = visible

    def advance(self, version: int) -> None:
        """Makes everything up to ``version`` visible; a lower version changes nothing. The publish gate must be held."""
        self.visible = max(self.visible, version)
