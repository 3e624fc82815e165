"""What writers ask for: operations, field-level changes, and the form in which they are stored."""

from publishers.mutations.fields import FieldChange
from publishers.mutations.rows import Mutation

__all__ = ["FieldChange", "Mutation"]
