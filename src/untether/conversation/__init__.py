"""What happens to a message: who sent it, where it goes, what its run shows and asks, and how the answer returns."""
