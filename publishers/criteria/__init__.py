"""What subscribers are interested in, and which changes that is: wishes, their predicates, and the index over many."""
