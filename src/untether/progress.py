"""The name under which others know the progress fold; the room is `conversation.progress`."""

from .conversation.progress import ProgressTracker

__all__ = ["ProgressTracker"]
